// @ts-check
/** What the page asks a person: whether a thing that hurts is meant, and the token. */
import { byId, h, setAttribute, setText } from './dom.js';

const TOAST_MS = 5_000;

/**
 * Asks before something that cannot be taken back. Escape and the first button mean no.
 *
 * @param {{ title: string, text: string, verb: string }} question
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text, verb }) {
  const dialog = h('dialog', { 'aria-labelledby': 'confirm-title', 'aria-describedby': 'confirm-text' });
  return new Promise((resolve) => {
    let answer = false;
    const yes = () => {
      answer = true;
      dialog.close();
    };
    dialog.append(
      h('h2', { id: 'confirm-title' }, title),
      h('p', { id: 'confirm-text' }, text),
      h(
        'div',
        { class: 'verbs' },
        h('button', { type: 'button', click: () => dialog.close() }, 'Leave it'),
        h('button', { type: 'button', class: 'hurts', click: yes }, verb),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Asks for the token until one is given.
 *
 * @param {boolean} wrong - the one given before was not right
 * @returns {Promise<string>}
 */
export function askToken(wrong) {
  const field = h('input', {
    type: 'password',
    id: 'token',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'aria-describedby': 'token-text',
  });
  const text = wrong
    ? 'That was not the token of this noria. It stands in its configuration, under admin.'
    : 'It stands in the configuration, under admin. It is kept until this tab is closed.';
  return new Promise((resolve) => {
    const take = (/** @type {Event} */ event) => {
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
      h('h2', { id: 'token-title' }, 'This noria asks for its token'),
      h('p', { id: 'token-text', class: wrong ? 'wrong' : '' }, text),
      h(
        'form',
        { submit: take },
        h('label', { for: 'token' }, 'Token'),
        field,
        h('button', { type: 'submit' }, 'Show me'),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let toastTimer;

/**
 * Says how something went, for a few seconds.
 *
 * @param {string} text
 * @param {'fine' | 'failed'} mood
 */
export function toast(text, mood) {
  const element = byId('toast');
  setText(element, text);
  setAttribute(element, 'data-mood', mood);
  element.classList.add('shown');
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => element.classList.remove('shown'), TOAST_MS);
}
