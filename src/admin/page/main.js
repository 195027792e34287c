// @ts-check
/**
 * The dashboard: asks noria for its state, follows its events, and shows both. An event never changes what is shown by
 * itself; it only says that it is time to ask again. So what stands here is always what noria said last.
 */
import { openActions } from './actions.js';
import { follow, hasToken, Refused, read, setToken } from './api.js';
import { askToken } from './dialogs.js';
import { byId, setAttribute, setText } from './dom.js';
import { openFailures } from './failures.js';
import { duration } from './format.js';
import { announce, showVerdict } from './headline.js';
import { openMemberCard, openRoster } from './member.js';
import { MOST_ASKED, openSessions } from './sessions.js';
import { openSources } from './sources.js';
import { openTraffic } from './traffic.js';
import { MOST_DRAWN, Wheel } from './wheel.js';

/**
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../schemas.ts').HistoryView} History
 */

/** What is worth asking again for. */
const FOLLOWED = [
  'member.joined',
  'member.quarantined',
  'member.restored',
  'member.drained',
  'member.left',
  'session.bound',
  'session.moved',
  'session.ended',
  'draw.started',
  'draw.done',
  'source.moved',
  'network.judged',
];
/** Asked again this often even if nothing happens: loads and counts change without an event. */
const REFRESH_MS = 2_000;
/** At least so long between two questions, however much happens. */
const SPACING_MS = 300;
const HISTORY_MS = 5_000;
const TICK_MS = 500;
/** Before each try to reach noria again; the last one stays. */
const RETRY_MS = [500, 1_000, 2_000, 4_000];

/** @type {readonly Member[]} */
let members = [];
/** Which member the card shows: the one that was chosen, else the one that is pointed at. @type {{ pinned?: string | undefined, pointed?: string | undefined }} */
const looked = {};
/** @type {'15m' | '24h'} */
let span = '15m';
let skewMs = 0;
/** When noria last answered, by performance.now(). */
let contactAt = performance.now();
let lost = false;

const wheel = new Wheel((member, pinned) => {
  if (pinned) looked.pinned = looked.pinned === member?.id ? undefined : member?.id;
  looked.pointed = member?.id;
  showCard();
});
const actions = openActions(refresh);
const card = openMemberCard((member) => void actions.evict(member).then(keepFocus));
const roster = openRoster();
const sources = openSources(actions);
const traffic = openTraffic();
const failures = openFailures();
const sessions = openSessions(actions);

let asking = false;
let askAgain = false;

/** The button that was pressed may have gone with its member: whoever uses the keyboard goes on at the wheel. */
function keepFocus() {
  if (document.activeElement === document.body) wheel.focus();
}

/** Asks for everything once more, soon; whatever happens meanwhile is one more question. */
function refresh() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  askAgain = false;
  void askAll().finally(() => {
    setTimeout(() => {
      asking = false;
      if (askAgain) refresh();
    }, SPACING_MS);
  });
}

async function askAll() {
  try {
    const [state, list, held, failed] = await Promise.all([
      read('/api/status'),
      read(`/api/members?limit=${MOST_DRAWN}`),
      read(`/api/sessions?limit=${MOST_ASKED}`),
      read('/api/failures'),
    ]);
    const status = /** @type {Status} */ (state.value);
    members = list.value;
    skewMs = state.skewMs;
    const at = performance.now();
    showVerdict(status);
    wheel.show(status.sources, members, at);
    showCard();
    roster.show(members);
    document.body.dataset['members'] = members.length === 0 ? 'none' : 'some';
    sources.show(status.sources);
    sessions.show(held.value, status.pool.sessions);
    failures.show(failed.value);
    inContact();
    tick();
  } catch {
    // ignored: the stream notices that noria is away, says so, and asks again when it is back
  }
}

let historyAsked = false;

async function askHistory() {
  if (historyAsked) return;
  historyAsked = true;
  try {
    const { value } = await read(`/api/history?span=${span}`);
    const history = /** @type {History} */ (value);
    if (history.span !== span) return; // another one was chosen meanwhile
    traffic.show(history);
    if (span === '15m') wheel.turn(history.tunnelsPerSecond.at(-1) ?? 0);
  } catch {
    // ignored: as above
  } finally {
    historyAsked = false;
  }
}

/** The chosen member while it is there, else the one that is pointed at. */
function showCard() {
  const find = (/** @type {string | undefined} */ id) => members.find((member) => member.id === id);
  const pinned = find(looked.pinned);
  if (pinned === undefined) delete looked.pinned;
  wheel.mark(looked.pinned);
  card.show(find(looked.pointed) ?? pinned);
}

/** What goes on between two answers: lives end, countdowns count, silence grows. */
function tick() {
  if (lost) {
    const silent = duration((performance.now() - contactAt) / 1_000);
    setText(byId('contact'), `no contact for ${silent}, trying again`);
    return;
  }
  const now = Date.now() + skewMs;
  wheel.drain(performance.now());
  sources.tick(now);
  failures.tick(now);
}

function inContact() {
  contactAt = performance.now();
  if (lost) announce('Contact with noria is back.');
  lost = false;
  document.body.dataset['contact'] = 'live';
  setText(byId('contact'), 'live');
}

function loseContact() {
  if (!lost) announce('Contact with noria is lost.');
  document.body.dataset['contact'] = 'lost';
  lost = true;
  tick();
}

/** Follows the events for as long as the page is there; says when noria is away, and comes back to it. */
async function stayConnected() {
  for (let tries = 0; ; ) {
    try {
      await follow(FOLLOWED, (name) => {
        tries = 0;
        if (name === 'hello') void askHistory();
        refresh();
      });
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        const wrong = hasToken();
        setToken(undefined);
        setToken(await askToken(wrong));
        byId('leave').hidden = false;
        continue;
      }
      // Whatever else it was: noria is away, which is what the page says.
    }
    loseContact();
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
    tries += 1;
  }
}

for (const button of document.querySelectorAll('[data-span]')) {
  button.addEventListener('click', () => {
    span = button.getAttribute('data-span') === '24h' ? '24h' : '15m';
    for (const one of document.querySelectorAll('[data-span]')) {
      setAttribute(one, 'aria-pressed', String(one === button));
    }
    historyAsked = false;
    void askHistory();
  });
}
byId('leave').hidden = !hasToken();
byId('leave').addEventListener('click', () => {
  setToken(undefined);
  location.reload();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !lost) refresh();
});
const unlessHidden = (/** @type {() => void} */ ask) => () => {
  if (!document.hidden && !lost) ask();
};
setInterval(unlessHidden(refresh), REFRESH_MS);
setInterval(
  unlessHidden(() => void askHistory()),
  HISTORY_MS,
);
setInterval(tick, TICK_MS);
void stayConnected();
