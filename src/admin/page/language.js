// @ts-check
/**
 * The language of the page: the language that the person has chosen on the page, or else the first of the browser's
 * preferred languages that the page supports.
 */

/** @typedef {'en' | 'zh-CN'} Language */

const STORAGE_KEY = 'noria-language';
/**
 * The page sets this key when the person switches the language, and then reloads. If the key is set, the reloaded page
 * moves the keyboard focus to the language switch.
 */
const SWITCHED_KEY = 'noria-language-switched';

export const LANGUAGE = chooseLanguage(
  stored(),
  globalThis.document === undefined ? [] : navigator.languages,
);

/** The locale of dates and times. en-GB shows 24-hour times. */
export const LOCALE = LANGUAGE === 'en' ? 'en-GB' : LANGUAGE;

/**
 * @param {string | null} chosen
 * @param {readonly string[]} preferred - BCP 47 tags, the most preferred first
 * @returns {Language}
 */
export function chooseLanguage(chosen, preferred) {
  const tags = chosen === null ? preferred : [chosen];
  const first = tags
    .map((tag) => tag.toLowerCase().split('-')[0])
    .find((tag) => tag === 'en' || tag === 'zh');
  return first === 'zh' ? 'zh-CN' : 'en';
}

export function openLanguageSwitch() {
  const switched = sessionStorage.getItem(SWITCHED_KEY) !== null;
  sessionStorage.removeItem(SWITCHED_KEY);
  for (const button of document.querySelectorAll('button[data-language]')) {
    const language = button.getAttribute('data-language') ?? '';
    button.setAttribute('aria-pressed', String(language === LANGUAGE));
    button.addEventListener('click', () => {
      localStorage.setItem(STORAGE_KEY, language);
      sessionStorage.setItem(SWITCHED_KEY, '');
      location.reload();
    });
    if (switched && language === LANGUAGE && button instanceof HTMLElement) button.focus();
  }
}

function stored() {
  return globalThis.document === undefined ? null : localStorage.getItem(STORAGE_KEY);
}
