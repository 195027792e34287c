// @ts-check
/** The texts of the page in its language. */
import { LANGUAGE } from './language.js';
import { EN } from './texts-en.js';
import { ZH } from './texts-zh.js';

export const TEXTS = LANGUAGE === 'zh-CN' ? ZH : EN;
