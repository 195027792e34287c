// @ts-check
/** The texts in the language of the page. */
import { LANGUAGE } from './language.js';
import { EN } from './texts-en.js';
import { ZH } from './texts-zh.js';

export const TEXTS = LANGUAGE === 'zh-CN' ? ZH : EN;
