/**
 * Decides from a source's draw parameters `adr` and `nadr` whether the source can draw members in a location. All functions are
 * pure.
 */

/**
 * Names of regions that never occur in a location of another region. Names that occur in a location of another region are
 * omitted: 海南 (海南州 in 青海), 河南 (河南县 in 青海), 河北 (河北区 in 天津). Two adjacent place names can also form a region name, as 芜湖 and 南陵
 * form 湖南. For this reason, 山西, 山东, 湖北, 湖南, 江西 and 云南 are omitted as well.
 */
const REGIONS = [
  ...[
    '北京',
    '上海',
    '天津',
    '重庆',
    '辽宁',
    '吉林',
    '黑龙江',
    '江苏',
    '浙江',
    '安徽',
    '福建',
    '广东',
    '广西',
  ],
  ...['四川', '贵州', '西藏', '陕西', '甘肃', '青海', '宁夏', '新疆', '内蒙古', '香港', '澳门', '台湾'],
];

/** Comma-separated keywords: locations to draw (`adr`) and locations to exclude (`nadr`). */
export interface LocationParams {
  readonly adr?: unknown;
  readonly nadr?: unknown;
}

/** @returns whether the source can draw members whose location contains the keyword; undefined if the parameters leave it open. */
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
