/**
 * Locations of members, and the keywords with which clients select them. Each distinct location is stored once, so a search compares each
 * text once.
 */
import { BoundedMap } from '../core/bounded-map.ts';

export interface Location {
  readonly text: string;
  readonly folded: string;
}

/** A country has fewer combinations of province, city and carrier. */
const MAX_LOCATIONS = 20_000;

export class Locations extends BoundedMap<string, Location> {
  constructor() {
    super(MAX_LOCATIONS);
  }

  of(text = ''): Location {
    return this.getOrMake(text, () => ({ text, folded: foldLocation(text) }));
  }
}

export function foldLocation(text: string): string {
  return text.toLowerCase();
}

/** A location without Latin letters, such as a Chinese one, cannot contain a keyword with one. */
export function hasLatinLetter(text: string): boolean {
  return /\p{Script=Latin}/u.test(text);
}

/** Gateways of other services select locations by country or state codes; this service's locations are words. */
export function looksLikeCode(keyword: string): boolean {
  return /^[a-z]{1,3}$/i.test(keyword);
}

/**
 * Regions whose names occur only in their own locations. 海南, 河南 and 河北 are omitted, because places in other regions
 * contain these names (海南州 in 青海, 河南县 in 青海, 河北区 in 天津). 山西, 山东, 湖北, 湖南, 江西 and 云南 are omitted, because two adjacent
 * place names can form them, as 芜湖 and 南陵 form 湖南.
 */
const REGIONS =
  '北京 上海 天津 重庆 辽宁 吉林 黑龙江 江苏 浙江 安徽 福建 广东 广西 四川 贵州 西藏 陕西 甘肃 青海 宁夏 新疆 内蒙古 香港 澳门 台湾'.split(
    ' ',
  );

export interface LocationParams {
  readonly adr?: unknown;
  readonly nadr?: unknown;
}

/** Undefined if the parameters do not show it. */
export function couldDrawLocation({ adr, nadr }: LocationParams, keyword: string): boolean | undefined {
  const wanted = keyword.toLowerCase();
  if (keywordsOf(nadr).some((excluded) => wanted.includes(excluded))) return false;
  const drawn = keywordsOf(adr);
  if (drawn.some((each) => each.includes(wanted) || wanted.includes(each))) return true;
  const region = regionOf(wanted);
  if (region === undefined || drawn.length === 0) return undefined;
  const isElsewhere = (each: string) => ![undefined, region].includes(regionOf(each));
  return drawn.every(isElsewhere) ? false : undefined;
}

function keywordsOf(param: unknown): string[] {
  if (typeof param !== 'string') return [];
  const keywords = param.split(',').map((keyword) => keyword.trim().toLowerCase());
  return keywords.filter((keyword) => keyword !== '');
}

function regionOf(keyword: string): string | undefined {
  return REGIONS.find((region) => keyword.startsWith(region));
}
