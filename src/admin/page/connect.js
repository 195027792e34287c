// @ts-check
/** The URL of the proxy, and the key figures: usable members, served requests, connect time. */
import { toast } from './dialogs.js';
import { byId, h, setAttribute, setText } from './dom.js';
import { count, milliseconds } from './format.js';
import { TEXTS } from './texts.js';

/**
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {import('../schemas.ts').HistoryView} History
 */

export function openConnect() {
  const proxy = copyRow(TEXTS.connect.proxy);
  const curl = copyRow(TEXTS.connect.test);
  byId('copies').replaceChildren(proxy.element, curl.element);
  const usable = vital(TEXTS.vitals.usable);
  const success = vital(TEXTS.vitals.success);
  const p50 = vital(TEXTS.vitals.p50);
  const p95 = vital(TEXTS.vitals.p95);
  byId('vitals').replaceChildren(usable.element, success.element, p50.element, p95.element);
  return {
    /** @param {Status} status */
    showStatus({ listeners, sources, testUrl }) {
      const url = proxyUrl(listeners, location.hostname);
      proxy.show(url ?? TEXTS.connect.none);
      curl.element.hidden = url === undefined;
      if (url !== undefined) curl.show(`curl -x ${url} ${testUrl}`);
      const { ready, wanted, extra } = countMembers(sources);
      usable.show(count(ready), TEXTS.vitals.counts(count(wanted), extra === 0 ? '' : count(extra)));
      setAttribute(usable.element, 'data-bad', ready === 0 && wanted > 0);
    },
    /** @param {History} history */
    showHistory({ total, span }) {
      const { succeeded, failed, dialP50Ms, dialP95Ms } = total;
      const note = failed === 0 ? '' : TEXTS.vitals.failed(count(failed), TEXTS.vitals.spans[span]);
      success.show(successText(succeeded, failed), note);
      setAttribute(success.element, 'data-bad', failed > succeeded);
      p50.show(dialP50Ms === null ? TEXTS.vitals.noData : milliseconds(dialP50Ms), '');
      p95.show(dialP95Ms === null ? TEXTS.vitals.noData : milliseconds(dialP95Ms), '');
    },
  };
}

/**
 * Returns the URL with which the browser's machine reaches the first HTTP listener. If the listener has a loopback
 * address, the URL works only on noria's own machine.
 * @param {Status['listeners']} listeners
 * @param {string} pageHost - the host of the page's URL, which replaces a wildcard address
 */
export function proxyUrl(listeners, pageHost) {
  const address = listeners.find(({ protocols }) => protocols.includes('http'))?.address.split(', ')[0];
  if (address === undefined || address === '') return undefined;
  return `http://${address.replace(/^(0\.0\.0\.0|\[::\])(?=:\d+$)/, pageHost)}`;
}

/**
 * Counts the members of all sources. `ready`: members that are ready for a client. `wanted`: the sum of the sources'
 * sizes. `extra`: ready members beyond the size of their source.
 * @param {readonly { ready: number, size: number }[]} sources
 */
export function countMembers(sources) {
  const sum = (/** @type {(source: { ready: number, size: number }) => number} */ of) =>
    sources.reduce((all, source) => all + of(source), 0);
  return {
    ready: sum(({ ready }) => ready),
    wanted: sum(({ size }) => size),
    extra: sum(({ ready, size }) => Math.max(0, ready - size)),
  };
}

/**
 * Returns the share of requests that succeeded, as a percentage. Rounds down, so that 100 % means that no request
 * failed.
 * @param {number} succeeded @param {number} failed
 */
export function successText(succeeded, failed) {
  const all = succeeded + failed;
  return all === 0 ? TEXTS.vitals.noData : `${Math.floor((succeeded / all) * 1_000) / 10} %`;
}

/** @param {string} term */
function copyRow(term) {
  const text = h('code');
  const copy = async () => {
    await navigator.clipboard.writeText(text.textContent ?? '');
    toast(TEXTS.connect.copied, 'done');
  };
  // If the browser denies access to the clipboard, the text is selected, so that the user can press Ctrl-C.
  const select = () => getSelection()?.selectAllChildren(text);
  const button = h('button', { type: 'button', click: () => copy().catch(select) }, TEXTS.connect.copy);
  setAttribute(button, 'aria-label', `${TEXTS.connect.copy}: ${term}`);
  return {
    element: h('div', {}, h('dt', {}, term), h('dd', {}, text, button)),
    /** @param {string} value */
    show: (value) => setText(text, value),
  };
}

/** @param {string} term */
function vital(term) {
  const value = h('dd', { class: 'vital-value' }, TEXTS.vitals.noData);
  const note = h('dd', { class: 'vital-note' });
  return {
    element: h('div', {}, h('dt', {}, term), value, note),
    /** @param {string} text @param {string} more */
    show(text, more) {
      setText(value, text);
      setText(note, more);
    },
  };
}
