/**
 * The table of all faults, and the class of errors that have such a fault. docs/errors.md lists the same faults,
 * checked by test/held/errors.test.ts.
 *
 * SOCKS4 has no column, because it has only one code for all refusals (0x5B).
 */
export type Side =
  | 'client'
  | 'member'
  | 'target'
  | 'source'
  | 'service'
  | 'front-proxy'
  | 'operator'
  | 'noria';

export interface Fault {
  readonly side: Side;
  readonly retry: 'never' | 'other-member' | 'later';
  /** The HTTP status for the client. Absent if no HTTP client gets the fault. */
  readonly http?: number | undefined;
  /** The SOCKS5 reply for the client (RFC 1928 §6). `auth`: the authentication fails instead (RFC 1929). */
  readonly socks5?: number | 'auth' | undefined;
  /** The error token of the Proxy-Status header (RFC 9209 §2.3). Absent if no client gets the fault. */
  readonly proxyStatus?: string | undefined;
  readonly summary: string;
  readonly advice: string;
  /** Summary and advice in Chinese. docs/zh-CN/errors.md lists the same texts. */
  readonly chinese: readonly [summary: string, advice: string];
}

const REPLACED = 'No action needed: noria tries another member and quarantines this one.';
const REPLACED_CHINESE = '不用处理：noria 会换成员，并隔离它。';

export const FAULTS = {
  // The faults that clients see. The HTTP header X-Noria-Error contains the code.
  'auth-required': fault(
    ['client', 'never', 407, 'auth', 'http_request_denied'],
    'Missing or invalid proxy credentials.',
    'Use the user name and password of a user of this listener (HTTP Basic or SOCKS5 username/password).',
    '代理认证信息缺失或错误。',
    '使用该监听器的用户名和密码（HTTP Basic 或 SOCKS5 用户名密码认证）。',
  ),
  'bad-routing': fault(
    ['client', 'never', 400, 'auth', 'http_request_error'],
    'Invalid or unsatisfiable routing options in the proxy user name or an X-Noria header.',
    'Write the options as BASE-key-value, for example user-session-abc-life-30s; docs/routing.md of noria lists the keys.',
    '用户名或 X-Noria-* 头中的路由选项无效，或无法满足。',
    '写成 BASE-选项-值，例如 user-session-abc-life-30s，见 noria 的 docs/zh-CN/routing.md。',
  ),
  forbidden: fault(
    ['client', 'never', 403, 0x02, 'http_request_denied'],
    'The listener does not allow this client or this target.',
    "Check allow and denyTargets of the listener in noria's configuration.",
    '监听器不允许该客户端或该目标。',
    '在 noria 的配置中检查监听器的 allow（白名单）和 denyTargets。',
  ),
  'bad-request': fault(
    ['client', 'never', 400, 0x01, 'http_request_error'],
    'The request is malformed.',
    'Send a CONNECT, absolute-form HTTP or SOCKS request.',
    '请求格式错误。',
    '发送 CONNECT、绝对地址形式的 HTTP 或 SOCKS 请求。',
  ),
  'request-timeout': fault(
    ['client', 'never', 408, 0x01, 'http_request_error'],
    'The request head did not arrive in time.',
    'Send the whole request head at once.',
    '请求头没有及时到达。',
    '一次发送完整的请求头。',
  ),
  'expectation-failed': fault(
    ['client', 'never', 417, undefined, 'http_request_error'],
    'The request has an Expect header that noria does not support.',
    'Use only Expect: 100-continue.',
    '不支持请求中的 Expect 头。',
    '只使用 Expect: 100-continue。',
  ),
  'uri-too-long': fault(
    ['client', 'never', 414, undefined, 'http_request_error'],
    'The request line is too long.',
    'Keep the URL below 16 KiB.',
    '请求行过长。',
    'URL 保持在 16 KiB 以内。',
  ),
  'head-too-large': fault(
    ['client', 'never', 431, undefined, 'http_request_error'],
    'The request head is too large.',
    'Keep the request line and headers below 16 KiB.',
    '请求头过大。',
    '请求行和请求头合计保持在 16 KiB 以内。',
  ),
  'not-implemented': fault(
    ['client', 'never', 501, 0x07, 'http_request_error'],
    'The request uses a feature that noria does not support.',
    'Over HTTP, use CONNECT or an absolute http:// URL, and no transfer coding except chunked. Over SOCKS, use only CONNECT.',
    '请求使用了 noria 不支持的功能。',
    '使用 CONNECT 或绝对的 http:// URL；传输编码只用 chunked；SOCKS 只用 CONNECT 命令。',
  ),
  'too-many-requests': fault(
    ['client', 'later', 429, 'auth', 'http_request_denied'],
    'Too many attempts with wrong credentials for this user from this address.',
    'Use the correct credentials: noria still accepts them. For up to a minute, each further wrong attempt gets this error.',
    '该地址对该用户发送了过多错误的认证信息。',
    '使用正确的认证信息，它始终有效；错误的最多会被拒绝一分钟。',
  ),
  'too-many-connections': fault(
    ['client', 'later', 503, 0x01, 'connection_limit_reached'],
    'The listener has reached its connection limit.',
    "Close connections, or raise maxConnections of the listener in noria's configuration.",
    '监听器达到最大连接数。',
    '关闭一些连接，或在 noria 的配置中增大监听器的 maxConnections。',
  ),
  'pool-empty': fault(
    ['source', 'later', 503, 0x01, 'destination_unavailable'],
    'No member became available in time.',
    'Try again after the time in Retry-After; noria status shows what each source waits for.',
    '没有及时得到可用的成员。',
    '在 Retry-After 之后重试；noria status 显示每个来源在等什么。',
  ),
  'site-banned': fault(
    ['target', 'later', 503, 0x01, 'destination_unavailable'],
    'Every exit is banned for this site, and noria may draw no more IPs for it now.',
    'Try again after the time in Retry-After; noria sites shows the bans. drawsForBans in targets limits the draws.',
    '该站点已封禁所有出口，noria 目前不能再为它提取 IP。',
    '在 Retry-After 之后重试；noria sites 显示封禁情况；targets 中的 drawsForBans 限制提取数量。',
  ),
  'session-ended': fault(
    ['member', 'never', 503, 0x01, 'destination_unavailable'],
    'The member of this fixed session has ended.',
    'Take another session name for a new exit; without fixed, noria moves the session by itself.',
    '该固定会话（fixed）的成员已结束。',
    '换一个会话名以得到新的出口；不用 fixed 时，noria 会自动换成员。',
  ),
  limit: fault(
    ['client', 'later', 429, 0x02, 'http_request_denied'],
    'A limit of the user or of the site is reached.',
    'Try again after the time in Retry-After, or raise the limit (limits of the user, rate in targets).',
    '已达到该用户或该站点的限额。',
    '在 Retry-After 之后重试，或调高限额（用户的 limits，targets 中的 rate）。',
  ),
  'target-unreachable': fault(
    ['target', 'never', 502, 0x04, 'destination_ip_unroutable'],
    'The target is unreachable through all members that noria tried.',
    'Check the host name and port of the target.',
    '试过的成员都无法到达目标。',
    '检查目标的主机名和端口。',
  ),
  'members-failed': fault(
    ['member', 'later', 502, 0x01, 'destination_unavailable'],
    'All members that noria tried failed.',
    'Try again; noria status shows the health of the members.',
    '试过的成员都失败了。',
    '重试；noria status 显示成员的健康状况。',
  ),
  'front-proxy-failed': fault(
    ['front-proxy', 'later', 502, 0x01, 'destination_unavailable'],
    'noria could not connect through the front proxy.',
    "Check the front proxy, and its URL in noria's configuration (dial.via or service.via).",
    '前置代理（via）没有为 noria 建立连接。',
    '检查前置代理，以及 noria 配置中它的 URL（dial.via 或 service.via）。',
  ),
  'proxy-loop': fault(
    ['front-proxy', 'never', 502, 0x01, 'proxy_loop_detected'],
    'The front proxy leads back to noria.',
    'Set dial.via and service.via to a front proxy that does not send its connections to noria.',
    '前置代理又把连接送回了 noria。',
    '把 dial.via 和 service.via 设为不会把连接送回 noria 的前置代理。',
  ),
  'bad-answer': fault(
    ['target', 'never', 502, undefined, 'http_protocol_error'],
    'The response is not valid HTTP for this request, so noria did not forward it.',
    'Request the target without a proxy to see its response, or use CONNECT, which forwards any response.',
    '目标的响应不允许由代理转发。',
    '不经代理访问目标来查看它的响应；CONNECT 会原样转发一切。',
  ),
  deadline: fault(
    ['noria', 'later', 504, 0x06, 'connection_timeout'],
    'The deadline passed before a member reached the target.',
    "Try again, or raise dial.deadline in noria's configuration.",
    '在成员到达目标之前已超过时限。',
    '重试，或在 noria 的配置中增大 dial.deadline。',
  ),
  'shutting-down': fault(
    ['noria', 'later', 503, 0x01, 'proxy_internal_response'],
    'noria is shutting down.',
    'Try again when noria is running again.',
    'noria 正在停止。',
    '等 noria 重新运行后再试。',
  ),
  internal: fault(
    ['noria', 'later', 500, 0x01, 'proxy_internal_error'],
    'Internal error in noria.',
    'Report this error, with the lines that noria logged when it occurred.',
    'noria 内部错误。',
    '连同 noria 当时的日志一起报告。',
  ),

  // The faults of one attempt through one member.
  'member-unreachable': fault(
    ['member', 'other-member'],
    'Could not connect to the member.',
    REPLACED,
    '无法连接成员。',
    REPLACED_CHINESE,
  ),
  'member-silent': fault(
    ['member', 'other-member'],
    'The member accepted the connection but did not answer within dial.attemptTimeout.',
    REPLACED,
    '成员接受了连接，但在 dial.attemptTimeout 内没有答复。',
    REPLACED_CHINESE,
  ),
  'member-closed': fault(
    ['member', 'other-member'],
    'The member closed the connection before it answered.',
    REPLACED,
    '成员在答复之前关闭了连接。',
    REPLACED_CHINESE,
  ),
  'member-protocol': fault(
    ['member', 'other-member'],
    'The answer of the member does not follow its protocol.',
    'If all members of a source answer like this, check upstream.protocol of the source.',
    '成员的答复不符合协议。',
    '如果某个来源的成员都这样，检查该来源的 upstream.protocol。',
  ),
  'member-refused': fault(
    ['member', 'other-member'],
    'The member refused the request.',
    'If all members of a source refuse the request, check whether they allow the port of the target.',
    '成员拒绝了请求。',
    '如果某个来源的成员都这样，检查它们是否允许该端口。',
  ),
  'member-incapable': fault(
    ['member', 'other-member'],
    'The protocol of the member cannot carry the address of this target.',
    'SOCKS4 has no IPv6 addresses: request the target by name, or use members with another protocol.',
    '成员的协议无法表示该目标的地址。',
    'SOCKS4 不支持 IPv6 地址：用域名访问，或使用其他协议的成员。',
  ),
  'member-auth': fault(
    ['member', 'other-member'],
    'The member asked for credentials or rejected them.',
    "Bind this machine's IP address in the console of the service, or set the password of the instance in the source.",
    '成员要求认证，或拒绝了认证信息。',
    '在服务的控制台绑定本机 IP（白名单），或在来源中填写实例密码。',
  ),
  'target-doubted': fault(
    ['target', 'other-member'],
    'The member reported that it cannot reach the target.',
    'No action needed: noria tries another member, whose answer decides which side is at fault.',
    '成员报告无法到达目标。',
    '不用处理：noria 换一个成员，由它的结果判定责任方。',
  ),
  'front-proxy-silent': fault(
    ['front-proxy', 'other-member'],
    'The front proxy did not answer, or closed the connection. Either the front proxy or the member is at fault.',
    'No action needed if other members work; otherwise check the front proxy of dial.via.',
    '前置代理没有答复，或关闭了连接：责任在前置代理或成员。',
    '其他成员正常时不用处理，否则检查 dial.via 的前置代理。',
  ),
  'member-cut': fault(
    ['member', 'never'],
    'The member closed the tunnel before the first byte of an answer.',
    'No action needed: noria counts this as a suspicion against the member.',
    '收到答复的第一个字节之前，成员关闭了隧道。',
    '不用处理：记为对该成员的一次怀疑。',
  ),
  'member-mute': fault(
    ['member', 'never'],
    'The member accepted the target and then relayed no byte back, while the target answered through other members.',
    'No action needed: noria quarantines and probes a member that is mute for two hosts or clients.',
    '成员接受了目标，之后却没有传回任何字节，而目标通过其他成员有答复。',
    '不用处理：对两个主机或两个客户端都不传回字节的成员，noria 会隔离并探测。',
  ),
  'member-rejected': fault(
    ['member', 'other-member'],
    'A client of proxyPool reported the member as bad.',
    'No action needed: noria quarantines the member and assigns another one to the proxyPool port.',
    'proxyPool 的客户端报告该成员不可用。',
    '不用处理：noria 会隔离它，它的端口换用另一个成员。',
  ),
  'client-gone': fault(
    ['client', 'never'],
    'The client disconnected before a member accepted the request.',
    'No action needed, or raise the timeout of the client.',
    '成员接受请求之前，客户端已断开。',
    '不用处理，或增大客户端的超时时间。',
  ),
  'network-down': fault(
    ['noria', 'later'],
    'Connections to many members failed at once for different targets, so the network of this machine is at fault.',
    'Check the network of this machine. Until it works again, noria evicts no members.',
    '连往许多成员、不同目标的连接同时失败，说明是本机网络的问题。',
    '检查本机网络；恢复之前，noria 不会剔除成员。',
  ),

  // The faults of calls to the extraction service.
  'service-transport': fault(
    ['service', 'later'],
    'The extraction service did not answer.',
    "Check service.baseUrl, or the source's own baseUrl, host or url, and the network; noria retries with increasing delays.",
    '提取服务没有答复。',
    '检查服务地址（service.baseUrl，或来源的 baseUrl、host 或 url）和网络；noria 会重试，间隔逐次加长。',
  ),
  'service-blocked': fault(
    ['service', 'later'],
    'The answer did not come from the service; a firewall may block the address of this machine.',
    'Stop other programs that call the service from this machine; noria waits before it retries.',
    '答复的不是提取服务，本机 IP 可能被防火墙封禁。',
    '停掉从本机 IP 调用该服务的其他程序；noria 会等待后再试。',
  ),
  'service-not-found': fault(
    ['service', 'later'],
    'The server at the configured address does not have the operation that noria called.',
    "Check service.baseUrl, or the source's own baseUrl, host or url.",
    '服务地址上的服务器没有该接口。',
    '检查 service.baseUrl，或来源的 baseUrl、host 或 url。',
  ),
  'service-protocol': fault(
    ['service', 'later'],
    'The answer of the service could not be parsed.',
    'Check that format and textLayout of the source match the extraction format of the instance.',
    '无法解析服务的返回内容。',
    '检查 format 和 textLayout 与实例的提取格式是否一致。',
  ),
  'list-unreadable': fault(
    ['service', 'later'],
    'noria cannot read the list of proxies.',
    'Check file or url of the source, and that noria may read it; the members of the last successful reading stay.',
    'noria 无法读取代理列表。',
    '请检查该来源的 file 或 url，以及 noria 是否有权限读取；上次成功读取的成员会保留。',
  ),
  'link-unreadable': fault(
    ['service', 'later'],
    'The answer of the link contains no proxy that noria can read.',
    'Read the quoted answer, which may say why. If it lists proxies, correct `answer` of the source in the configuration; `noria link` shows what noria recognises.',
    '提取链接的返回内容里没有能识别的代理。',
    '请阅读引用的返回内容，其中可能写有原因。如果它列出了代理，请修改配置中该来源的 answer；命令 noria link 显示能识别什么。',
  ),
  'service-refused': fault(
    ['service', 'later'],
    'The service returned an error code.',
    'Look up the code in docs/service.md of noria.',
    '服务返回了错误码。',
    '见 noria 的 docs/zh-CN/service.md，返回码。',
  ),

  // The faults of the configuration, the command line and the admin API.
  'bad-usage': fault(
    ['operator', 'never'],
    'Invalid command or arguments.',
    'Run noria help COMMAND for its usage.',
    '命令或参数无效。',
    '运行 noria help COMMAND 查看用法。',
  ),
  'bad-config': fault(
    ['operator', 'never'],
    'The configuration is invalid.',
    'Correct the lines that the errors name; each error says what noria expected.',
    '配置无效。',
    '按错误给出的位置修改；每个错误都说明应该填什么。',
  ),
  'listen-failed': fault(
    ['operator', 'never'],
    'Could not listen on an address.',
    'Correct the address in the configuration, or stop the program that uses the address.',
    '无法监听某个地址。',
    '修改配置中的地址，或停掉占用该地址的程序。',
  ),
  'state-locked': fault(
    ['operator', 'never'],
    'Another noria uses the same state folder.',
    'Stop the other noria, or set another state.dir for this one.',
    '另一个 noria 正在使用同一个状态目录。',
    '停掉它，或为本进程设置另一个 state.dir。',
  ),
  'state-unwritable': fault(
    ['operator', 'never'],
    'The state folder cannot be written.',
    'Make state.dir writable for the user that runs noria, on a file system with hard links.',
    '状态目录不可写。',
    '让运行 noria 的用户可以写 state.dir，并放在支持硬链接的文件系统上。',
  ),
  'fleet-store-lost': fault(
    ['operator', 'later'],
    "noria cannot reach the fleet's store, so noria draws no members.",
    'Check fleet.url and the store; noria continues with the members it has, and reconnects by itself.',
    '无法连接集群的存储，因此不再提取。',
    '检查 fleet.url 和存储；noria 使用已有的成员，并自动重连。',
  ),
  'fleet-store-unusable': fault(
    ['operator', 'later'],
    "The fleet's store refuses noria, so noria draws no members.",
    'Run noria check, which names the problem and the solution.',
    '集群的存储拒绝 noria，因此不再提取。',
    '运行 noria check，它会指出问题和解决办法。',
  ),
  'workers-failed': fault(
    ['operator', 'never'],
    'All worker processes keep failing, so noria cannot serve clients.',
    'See the log for the reasons; check the memory and process limits, or set workers: 1.',
    '所有工作进程不断失败，noria 无法服务客户端。',
    '从日志查看原因；检查内存和进程数限制，或设置 workers: 1。',
  ),
  'pace-held': fault(
    ['operator', 'later'],
    'The pace of the source does not allow a call to the service now.',
    'Try again after the time that the message names.',
    '来源的提取间隔不允许现在调用服务。',
    '在消息给出的时间之后重试。',
  ),
  'daemon-unreachable': fault(
    ['operator', 'later'],
    'No running noria answered at the admin address.',
    'Start noria with the command noria run, or give its address with --admin.',
    '管理地址上没有运行中的 noria。',
    '用 noria run 启动，或用 --admin 指定地址。',
  ),
  'not-found': {
    ...fault(
      ['operator', 'never'],
      'The requested item does not exist.',
      'Run noria status, noria members or noria sessions to list what exists.',
      '请求的对象不存在。',
      '运行 noria status、noria members 或 noria sessions，列出存在的对象。',
    ),
    http: 404,
  },
};

export type FaultCode = keyof typeof FAULTS;

export class NoriaError extends Error {
  override readonly name = 'NoriaError';
  readonly code: FaultCode;
  /** Values for the log: ids, host:port, counts, times in ms. They never contain a secret or a body. */
  readonly context: Readonly<Record<string, string | number | boolean>>;

  constructor(
    code: FaultCode,
    message: string,
    options: { readonly cause?: unknown; readonly context?: NoriaError['context'] } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.context = options.context ?? {};
  }
}

export function hasCode(error: unknown, code: FaultCode): error is NoriaError {
  return error instanceof NoriaError && error.code === code;
}

/** The code of the system or of Node: `ENOENT`. */
export function errnoOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** One line for any thrown value; for an AggregateError, with the texts of all its errors. */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0)
    return error.errors.map(describeError).join('; ');
  if (error instanceof Error) return error.message === '' ? error.name : error.message;
  return String(error);
}

function fault(
  [side, retry, http, socks5, proxyStatus]: readonly [
    Side,
    Fault['retry'],
    http?: number,
    socks5?: Fault['socks5'],
    proxyStatus?: string,
  ],
  summary: string,
  advice: string,
  ...chinese: Fault['chinese']
): Fault {
  return { side, retry, http, socks5, proxyStatus, summary, advice, chinese };
}
