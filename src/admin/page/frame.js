// @ts-check
/** Replaces the English texts in index.html with texts in the page's language. */
import { byId, setAttribute, setText } from './dom.js';
import { LANGUAGE, openLanguageSwitch } from './language.js';
import { TEXTS } from './texts.js';

/** The pages of the documentation that also exist in Chinese. */
const CHINESE_PAGES = ['README.md', 'clients.md', 'errors.md'];

export function openFrame() {
  document.documentElement.lang = LANGUAGE;
  const frame = /** @type {Record<string, string>} */ (TEXTS.frame);
  for (const element of document.querySelectorAll('[data-text]'))
    setText(element, frame[element.getAttribute('data-text') ?? ''] ?? '');
  for (const element of document.querySelectorAll('[data-label]')) {
    const label = frame[element.getAttribute('data-label') ?? ''];
    setAttribute(element, 'aria-label', label);
    if (element instanceof HTMLInputElement) setAttribute(element, 'placeholder', label);
  }
  setAttribute(byId('description'), 'content', TEXTS.frame.description);
  if (LANGUAGE === 'zh-CN') {
    for (const page of CHINESE_PAGES)
      document.querySelector(`a[href="/docs/${page}"]`)?.setAttribute('href', `/docs/zh-CN/${page}`);
  }
  openLanguageSwitch();
}
