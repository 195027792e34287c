// @ts-check
/** The confirmation dialog, the token dialog and the toast. */
import { byId, h, setAttribute, setText } from './dom.js';
import { TEXTS } from './texts.js';

const TOAST_MS = 5_000;

/**
 * Asks for confirmation of a destructive action. Escape and the first button cancel the action.
 *
 * @param {{ title: string, text: string, action: string }} question
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text, action }) {
  const dialog = h('dialog', { 'aria-labelledby': 'confirm-title', 'aria-describedby': 'confirm-text' });
  return new Promise((resolve) => {
    let confirmed = false;
    const accept = () => {
      confirmed = true;
      dialog.close();
    };
    dialog.append(
      h('h2', { id: 'confirm-title' }, title),
      h('p', { id: 'confirm-text' }, text),
      h(
        'div',
        { class: 'actions' },
        h('button', { type: 'button', click: () => dialog.close() }, TEXTS.actions.cancel),
        h('button', { type: 'button', class: 'danger', click: accept }, action),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(confirmed);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Asks for the token. The dialog closes only after a token is entered.
 * @param {boolean} rejected - whether noria refused the previous token
 * @returns {Promise<string>}
 */
export function askToken(rejected) {
  const field = h('input', {
    type: 'password',
    id: 'token',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'aria-describedby': 'token-text',
  });
  const text = rejected ? TEXTS.token.wrong : TEXTS.token.ask;
  return new Promise((resolve) => {
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const token = field.value.trim();
      if (token === '') return;
      dialog.close();
      dialog.remove();
      resolve(token);
    };
    const dialog = h(
      'dialog',
      { 'aria-labelledby': 'token-title', cancel: (event) => event.preventDefault() },
      h('h2', { id: 'token-title' }, TEXTS.token.title),
      h('p', { id: 'token-text', class: rejected ? 'wrong' : '' }, text),
      h(
        'form',
        { submit },
        h('label', { for: 'token' }, TEXTS.token.label),
        field,
        h('button', { type: 'submit' }, TEXTS.token.action),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let toastTimer;

/**
 * Shows a message for `TOAST_MS`.
 *
 * @param {string} text
 * @param {'done' | 'failed'} outcome
 */
export function toast(text, outcome) {
  const element = byId('toast');
  setText(element, text);
  setAttribute(element, 'data-outcome', outcome);
  element.classList.add('shown');
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => element.classList.remove('shown'), TOAST_MS);
}
