// @ts-check
/** The Chinese meaning of each code of the extraction service. The meaning of some codes depends on the product. */

/** @type {Readonly<Record<string, string | Readonly<Record<string, string>>>>} */
export const CHINESE_CODES = {
  12001: '密钥错误',
  12002: '调用频率过快',
  12003: '参数不完整或有错误',
  12004: '实例不存在或已过期',
  12005: '实例已过期',
  12006: '实例被冻结或禁用',
  12007: {
    other: '授权模式为终端 IP 授权，但没有绑定终端 IP',
    'short-pure': '实例没有设置 IP 白名单',
  },
  12008: {
    other: '实例的使用额度已用完',
    'long-residential': '实例的 HTTP 并发连接数超过限额',
    'residential-socks5': '实例的使用额度或流量额度已用完',
    'short-pure': '实例被限制使用',
  },
  12009: '当前条件下没有可用的代理 IP',
  12010: {
    other: '本机没有获得调用此接口的授权',
    'long-residential': '去重 IP 数已达到当日或累计上限',
    'residential-socks5': '去重 IP 数已达到当日或累计上限',
  },
  12012: '刚刚有另一个 IP 使用该应用提取',
  12019: '本机没有获得调用此接口的授权',
  17008: '本机没有获得调用此接口的授权',
};

/**
 * @param {string} code
 * @param {string} product
 * @returns {string | undefined} undefined when the table does not contain the code
 */
export function chineseMeaning(code, product) {
  const meaning = CHINESE_CODES[code];
  return typeof meaning === 'object' ? (meaning[product] ?? meaning['other']) : meaning;
}
