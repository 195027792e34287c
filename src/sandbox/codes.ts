/**
 * Why the sandbox refuses a call, with the code and the text of each reason. The texts are Chinese, like those of the
 * service; clients must not depend on them. Source: the service's specification, Errors.
 */

/** What is wrong with a call. The code for it depends on the operation. */
export type RefusalReason =
  | 'key'
  | 'pace'
  | 'parameters'
  | 'unknown'
  | 'expired'
  | 'frozen'
  | 'unbound'
  | 'quota'
  | 'none'
  | 'distinct'
  | 'device'
  | 'other-client';

/**
 * The codes with which one operation refuses calls, by reason. A reason is absent if the operation has no code for it.
 */
export type RefusalCodes = Readonly<Partial<Record<RefusalReason, string>>>;

export const SUCCESS_CODE = '10001';

/** The codes that are the same for all extraction operations (1 to 8). */
export const EXTRACTION_REFUSALS = {
  key: '12001',
  pace: '12002',
  parameters: '12003',
  unknown: '12004',
  frozen: '12006',
  none: '12009',
} as const satisfies RefusalCodes;

const TEXTS: Readonly<Record<RefusalReason, string>> = {
  key: 'akey错误',
  pace: '调用频率过快，请降低调用频率',
  parameters: '参数不完整或有错误',
  unknown: '该实例不存在或已过期',
  expired: '该实例已过期',
  frozen: '该实例已被冻结或禁用',
  unbound: '当前授权模式为"终端IP授权"，但尚未绑定终端IP',
  quota: '使用额度已经超限',
  none: '该参数条件下当前没有任何代理IP',
  distinct: '去重IP总量已经超限',
  device: '当前设备尚未获得调用此接口的授权',
  'other-client': '上一个客户端IP仍在提取，请等待其停止调用2分钟后再切换',
};

/** @param detail - appended to the text of the reason. */
export function refusal(
  refusals: RefusalCodes,
  reason: RefusalReason,
  detail = '',
): { readonly code: string; readonly msg: string } {
  const code = refusals[reason];
  if (code === undefined) throw new TypeError(`the operation has no code for: ${reason}`);
  return { code, msg: TEXTS[reason] + detail };
}

/** Returns the text for a code of an operation; for an unknown code, a general text. */
export function textForCode(refusals: RefusalCodes, code: string): string {
  if (code === SUCCESS_CODE) return '获取成功';
  for (const reason of Object.keys(TEXTS) as RefusalReason[])
    if (refusals[reason] === code) return TEXTS[reason];
  return '未知错误';
}
