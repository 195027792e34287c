/** The locations of the sandbox's proxies, with the names and area lines that the service uses. */

export interface SandboxLocation {
  /** In China: province, city and carrier. Abroad: the country. */
  readonly adr: string;
  /** The area line for exclusive instances at this location. */
  readonly area: string;
  readonly region: 'mainland' | 'overseas';
}

const mainland = (province: string, city: string, carrier: string): SandboxLocation => ({
  adr: `${province}${city} ${carrier}`,
  area: `${(city || province).replace(/市$/, '')}${carrier}`,
  region: 'mainland',
});
const overseas = (country: string): SandboxLocation => ({ adr: country, area: country, region: 'overseas' });

export const LOCATIONS: readonly SandboxLocation[] = [
  mainland('广东省', '深圳市', '电信'),
  mainland('广东省', '广州市', '联通'),
  mainland('广东省', '东莞市', '移动'),
  mainland('江苏省', '苏州市', '电信'),
  mainland('江苏省', '南京市', '移动'),
  mainland('浙江省', '杭州市', '电信'),
  mainland('浙江省', '宁波市', '联通'),
  mainland('上海市', '', '电信'),
  mainland('上海市', '', '联通'),
  mainland('北京市', '', '联通'),
  mainland('北京市', '', '教育网'),
  mainland('山东省', '青岛市', '联通'),
  mainland('四川省', '成都市', '电信'),
  mainland('湖北省', '武汉市', '移动'),
  mainland('福建省', '厦门市', '电信'),
  mainland('河南省', '郑州市', '铁通'),
  overseas('日本'),
  overseas('新加坡'),
  overseas('德国'),
  overseas('美国'),
];
