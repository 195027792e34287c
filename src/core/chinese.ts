/**
 * noria's own sentences about its state, in Chinese. The page, the command line and the bodies of errors read them here;
 * what the table does not contain stays English.
 *
 * Faults are translated by their code. Reasons with values are templates: `{x}` stands for a value, `{code}` for the
 * service's number, `{s}` for the plural. A value that is itself a sentence is translated too.
 */
import { FAULTS, type FaultCode } from './faults.ts';

export type Language = 'en' | 'zh-CN';

const SENTENCES: Readonly<Record<string, string>> = {
  // Refusals for the sake of a site (pool/pool.ts).
  'noria knows of {count} exits that this site has banned, since {since}; in {first} the first ban ends.':
    'noria 已知该站点封禁了 {count} 个出口，已有 {since}；第一个封禁在 {first} 后结束。',
  'Each exit was used for this site a short time ago.': '每个出口刚刚都访问过该站点。',
  'noria has drawn as many IPs for this site in the last hour as drawsForBans allows ({limit} for each source).':
    '最近一小时为该站点提取的 IP 已达 drawsForBans 的上限（每个来源 {limit} 个）。',
  'This site gets at most {rate} requests per second (rate in targets), and other clients wait.':
    '该站点每秒最多 {rate} 个请求（targets 的 rate），其他客户端也在等待。',
  // The codes of the service (service/codes.ts).
  'The call succeeded.': '获取成功。',
  'The key is wrong.': '密钥错误。',
  "Set password to the instance's own password, or akey to its 16-character key; the account's password and the full MD5 do not work. The command noria key prints the key of a password.":
    '把 password 设为实例自己的密码，或把 akey 设为它的 16 位密钥；账号密码和完整的 MD5 都无效。命令 noria key 可以算出密码的密钥。',
  'The service is called too often.': '调用频率过快。',
  'Raise interval of the source. If another program uses the same instance, stop that program.':
    '增大来源的 interval。如果有其他程序使用同一实例，请停掉它。',
  'The parameters are incomplete or wrong.': '参数不完整或有错误。',
  'Compare params, count and instance of the source with the settings of the instance in the console of the service.':
    '对照服务控制台中实例的设置，检查来源的 params、count 和 instance。',
  'The instance does not exist or has expired.': '实例不存在或已过期。',
  'Check instance and product of the source, or renew the instance.':
    '检查来源的 instance 和 product，或续费实例。',
  'The instance has expired.': '实例已过期。',
  'Renew the instance in the console of the service.': '在服务的控制台续费实例。',
  'The instance is frozen or disabled.': '实例被冻结或禁用。',
  'Enable the instance in the console of the service, or ask the service why it is frozen.':
    '在服务的控制台启用实例，或向服务询问冻结的原因。',
  'The instance authorises clients by terminal IP (their address), and no address is bound.':
    '实例按终端 IP 授权，但没有绑定终端 IP。',
  "Bind this machine's public address in the console of the service, or switch the instance to user name and password.":
    '在服务的控制台绑定本机的公网 IP，或把实例改为用户名密码授权。',
  'The instance has no IP whitelist.': '实例没有设置 IP 白名单。',
  "Add this machine's public address to the instance's whitelist in the console of the service.":
    '在服务的控制台把本机的公网 IP 加入实例的白名单。',
  'This device is not authorised to call the operation.': '本机没有获得调用此接口的授权。',
  "Bind this machine's public address in the console of the service.": '在服务的控制台绑定本机的公网 IP。',
  'The instance holds more HTTP connections than its quota allows.': '实例的 HTTP 并发连接数超过限额。',
  'Lower rotation.maxTunnelsPerMember or the load, or raise the quota in the console of the service.':
    '减小 rotation.maxTunnelsPerMember 或负载，或在服务的控制台提高限额。',
  'The usage quota of the instance is exceeded.': '实例的使用额度已用完。',
  'The usage or traffic quota of the instance is exceeded.': '实例的使用额度或流量额度已用完。',
  'Raise the quota in the console of the service, or wait until the quota is renewed.':
    '在服务的控制台提高额度，或等待额度更新。',
  'The instance is restricted.': '实例被限制使用。',
  'Look up the reason in the console of the service and remove the restriction there, or ask the service.':
    '在服务的控制台查看原因并解除限制，或询问服务。',
  'The service has no proxy that matches the parameters at the moment.': '当前条件下没有可用的代理 IP。',
  'If this continues, relax adr, timespan or the other filters in params of the source.':
    '如果一直如此，请放宽来源 params 中的 adr、timespan 等条件。',
  'The quota of distinct IPs is used up, for today or in total.': '去重 IP 数已达到当日或累计上限。',
  "Wait for the service's midnight (UTC+8), or buy more IPs.": '等到服务的零点（UTC+8），或购买更多 IP。',
  'Another address called the service with this application a moment ago.':
    '刚刚有另一个 IP 使用该应用提取。',
  "Stop the other caller, whose address is in the service's message. noria makes no call for two minutes.":
    '停掉另一个调用方，它的地址在服务返回的信息里。noria 两分钟内不再调用。',
  'No entry of the list matches the filter of the command.': '列表中没有符合命令条件的条目。',
  'Change or remove the option that filters the list.': '修改或去掉筛选列表的选项。',
  'The user name or the password is wrong.': '用户名或密码错误。',
  'Set account.username and account.password to the login of the account, not to the password of an instance.':
    '把 account.username 和 account.password 设为账号的用户名和密码，而不是实例的密码。',
  'Check the instance or the account in the configuration, and the options of the command.':
    '检查配置中的实例或账号，以及命令的选项。',
  'The link is called too often.': '提取链接的调用频率过快。',
  'Raise interval of the source. If another program uses the same link, stop that program.':
    '增大来源的 interval。如果有其他程序使用同一链接，请停掉它。',
  'The vendor denies the call.': '服务商拒绝了调用。',
  "Check in the vendor's console that this machine's public address is on the whitelist, that the order has not expired, and that the url is complete.":
    '在服务商的控制台检查：本机公网 IP 已加入白名单，订单没有过期，链接完整。',
  'The vendor has no proxy for this link at the moment.': '服务商的这个链接当前没有代理。',
  'If this continues, relax the filters in the url of the source.': '如果一直如此，请放宽来源 url 中的条件。',
  'The link answered with an error.': '提取链接返回了错误。',
  "Run noria status: it shows the vendor's own text, which says why. To tell noria how to react to the vendor's codes, set tooFast, denied and empty in `answer` of the source.":
    '运行 noria status，它显示服务商自己的说明。在来源的 `answer` 中设置 tooFast、denied 和 empty，可以告诉 noria 怎样处理服务商的返回码。',
  'The service answered with code {x}, which the specification does not list for operation {operation}.':
    '服务返回了接口 {operation} 的文档中没有的返回码 {x}。',
  "Run noria status: it shows the service's own text, which may explain the code.":
    '运行 noria status，它显示服务自己的说明，其中可能有解释。',
  'noria dropped all proxies of the answer, by reason: {reasons}.':
    'noria 丢弃了返回的所有代理，按原因：{reasons}。',
  'If you expect members at private addresses, set pool.allowPrivateAddresses to true.':
    '如果成员确实在内网，请把 pool.allowPrivateAddresses 设为 true。',
  'The service returned an address of this noria, which cannot be a member: ask the service why.':
    '服务返回了本 noria 的地址，它不能作为成员：请向服务询问原因。',
  "Check this machine's clock. If the times in the answer are not in China's time zone, set answer.expiry.zone of the source.":
    '检查本机的时钟。如果返回的时间不是中国时区，请设置来源的 answer.expiry.zone。',
  'The entries contain no user name and password, but upstream.auth is entry. Set upstream.auth to auto, or to a user name and a password.':
    '记录里没有用户名和密码，但 upstream.auth 是 entry。请把它设为 auto，或设为用户名和密码。',
  'Compare format and textLayout with the extraction format of the instance.':
    '对照实例的提取格式，检查 format 和 textLayout。',
  'Compare the key `answer` of the source with what the link returns.':
    '对照链接返回的内容，检查来源的 `answer`。',

  // The states of a source.
  '{code}: {reason}': '{code}：{reason}',
  'code {name}: {text}': '返回码 {name}：{text}',
  'message of the service: {text}': '服务的消息：{text}',
  '{reason} Another noria of the fleet got this answer.': '{reason}这是集群中另一个 noria 得到的返回。',
  '{advice} Then run noria resume {source}, or noria reload after a change of the configuration.':
    '{advice}然后运行 noria resume {source}；如果修改了配置，运行 noria reload。',
  'paused by the operator': '操作者已暂停',
  'Run noria resume {source}, or resume it in the dashboard.': '运行 noria resume {source}，或在面板中恢复。',
  'resumed by the operator': '操作者已恢复',
  'the pace allows one call every {time}': '提取间隔允许每 {time}调用一次',
  'the next call must wait {time} because of {cause}': '下一次调用要等待 {time}，原因是{cause}',
  'an earlier answer of the service, or a call of another process': '服务之前的返回，或另一个进程的调用',
  "an earlier answer of the service, a call of another noria, or lost data in the fleet's store":
    '服务之前的返回、另一个 noria 的调用，或集群存储丢失了数据',
  'requesting {n} member{s} from the service': '正在向服务提取 {n} 个成员',
  'no client request yet': '还没有客户端请求',
  'no client request yet; the next request starts a draw': '还没有客户端请求；下一个请求会开始提取',
  'no client request for {time}; the next request starts a draw':
    '{time}没有客户端请求；下一个请求会开始提取',
  'the configuration changed': '配置已更改',
  'another noria of the fleet has drawn from the instance': '集群中另一个 noria 已从该实例提取',
  'the source has enough members (size {n})': '来源的成员已足够（size {n}）',
  'holds {n} of at most {size}: {rate}, members live {time}':
    '持有 {n} 个成员，最多 {size} 个：{rate}，成员有效期 {time}',
  'holds {n} of {size}': '持有 {n} 个成员，共需 {size} 个',
  '{n} request{s} a second': '每秒 {n} 个请求',
  '{n} request{s} a minute': '每分钟 {n} 个请求',
  '{n} request{s} an hour': '每小时 {n} 个请求',
  'too few client requests to hold a member; the next request starts a draw':
    '客户端请求很少，不需要预先保持成员；下一个请求会开始提取',
  'a source with a smaller priority number can serve the clients': '优先级更高的来源可以服务客户端',
  'the daily budget of {n} distinct IP{s} is used up': '每日预算 {n} 个去重 IP 已用完',
  "Drawing resumes at the service's midnight (UTC+8). Raise dailyBudget to draw before that.":
    '服务的零点（UTC+8）后恢复提取。要提前提取，请增大 dailyBudget。',
  '{n} members in a row failed before their first use': '连续 {n} 个成员在首次使用之前就失败了',
  "Check that this machine's address is bound in the console of the service, and check upstream.protocol and upstream.auth of the source.":
    '检查服务的控制台是否绑定了本机 IP，以及来源的 upstream.protocol 和 upstream.auth。',
  '{n} of {all} members': '{all} 个成员中有 {n} 个',
  '{members} refused the credentials': '{members}拒绝了认证信息',
  'Check the password of the instance, or upstream.auth if it contains other credentials.':
    '检查实例的密码；如果 upstream.auth 中有其他认证信息，检查它。',
  '{members} require credentials, and none are configured': '{members}要求认证，但没有配置认证信息',
  "Bind this machine's public address in the console of the service, or configure the password of the instance (its key is not sufficient here), or set upstream.auth.":
    '在服务的控制台绑定本机的公网 IP，或配置实例的密码（这里只有密钥不够），或设置 upstream.auth。',

  'the gateway refused the credentials of {members}': '网关拒绝了认证信息：{members}',
  'Check the user name and the password in upstream.auth, and whether the vendor has to authorise the address of this machine; then resume the source.':
    '检查 upstream.auth 中的用户名和密码，以及是否需要服务商授权本机的地址；然后恢复该来源。',
  'members accept the credentials again': '成员又接受了认证信息',
  'No action needed.': '不用处理。',
  'the list has {n} member{s}': '列表有 {n} 个成员',
  'the list has {n} member{s}; {message}': '列表有 {n} 个成员；{message}',
  'members live {time}': '成员有效期 {time}',
  'the lifetime of members is unknown': '成员的有效期未知',

  // The front proxy (dialer/front-proxy.ts), in full sentences and as parts of one.
  'the front proxy {address}': '前置代理 {address}',
  'the front proxy': '前置代理',
  'a member': '成员',
  'this machine could not open a connection to {front}': '本机无法向{front}打开连接',
  'raise the limit of open files (ulimit -n), or free local ports':
    '增大打开文件数的限制（ulimit -n），或释放本地端口',
  'could not resolve the name of {front}': '无法解析{front}的名称',
  'check the host in {key} and the DNS of this machine': '检查 {key} 中的主机和本机的 DNS',
  // Calls of the service (service/transport.ts).
  '{server} refused the connection after {n} ms': '{server} 在 {n} 毫秒后拒绝了连接',
  "check service.baseUrl, or the source's own baseUrl, host or url, and whether the service is up":
    '检查 service.baseUrl，或来源自己的 baseUrl、host 或 url，以及服务是否在运行',
  'could not resolve {server} (after {n} ms)': '无法解析 {server}（{n} 毫秒后）',
  "check the host name and this machine's DNS": '检查主机名和本机的 DNS',
  'could not reach {server} (after {n} ms)': '无法到达 {server}（{n} 毫秒后）',
  "check this machine's network": '检查本机的网络',
  '{server} did not answer within {time} (waiting for {text})': '{server} 在 {time} 内没有答复（等待{text}）',
  'the connection': '连接',
  'the start of the answer': '答复的开头',
  'the end of the answer': '答复的结尾',
  'check the network, or raise service.timeout': '检查网络，或增大 service.timeout',
  'could not connect to {front}': '无法连接{front}',
  'check that the front proxy runs and that this machine may reach it; check host and port in {key}':
    '检查前置代理是否在运行、本机能否访问它，以及 {key} 中的主机和端口',
  '{front} requires a valid user name and password': '{front}要求有效的用户名和密码',
  'set the user name and password of the front proxy in {key}': '在 {key} 中填写前置代理的用户名和密码',
  '{front} refused to connect to {server}': '{front}拒绝连接{server}',
  'allow the host and the port in the front proxy; many front proxies allow CONNECT only to port 443':
    '在前置代理中允许该主机和端口；许多前置代理只允许 CONNECT 到 443 端口',
  '{front} did not answer like a proxy': '{front}的答复不像代理',
  'check the scheme and the port in {key}': '检查 {key} 中的协议和端口',
  '{front} did not answer': '{front}没有答复',
  'check that the front proxy works and can reach {server}': '检查前置代理是否正常，能否连接{server}',
  '{front} could not reach {server}': '{front}无法连接{server}',
  'check the name of the server, and whether the front proxy may reach this server':
    '检查服务器的名称，以及前置代理能否访问它',
  '{front} leads back to noria': '{front}又把连接送回 noria',
  'set {key} to a front proxy that does not send its connections to noria':
    '把 {key} 设为不会把连接送回 noria 的前置代理',
  "the fleet's store at {address} cannot be used: {why}": '无法使用集群的存储 {address}：{why}',
  "the fleet's store at {address} refused the login: {why}": '集群的存储 {address} 拒绝登录：{why}',

  // Commands that call the service or the store once (commands/terminal.ts).
  'waiting {time}: the pace does not allow the call earlier': '等待 {time}：提取间隔不允许更早调用',
  'Check fleet.url, that the store runs and answers, and that this machine can reach it; then run the command again.':
    '检查 fleet.url、存储是否在运行并答复，以及本机能否连接它；然后重新运行命令。',
  "Check service.baseUrl, or the source's own baseUrl, host or url, and the network; then run the command again.":
    '检查服务地址（service.baseUrl，或来源的 baseUrl、host 或 url）和网络；然后重新运行命令。',
  'Stop other programs that call the service from this machine, and wait before you run the command again.':
    '停掉从本机 IP 调用该服务的其他程序，等待一段时间后再运行命令。',

  // Whether noria serves clients (daemon/readiness.ts).
  'Source {name}: {state} ({reason}), next draw in {n} s': '来源 {name}：{state}（{reason}），{n} 秒后提取',
  'Source {name}: {state} ({reason})': '来源 {name}：{state}（{reason}）',
  'source {name}: {reason}': '来源 {name}：{reason}',
  '{reason}; and {n} more problem{s}': '{reason}；另有 {n} 个问题',
  'noria is shutting down: it refuses new clients, and waits for open tunnels until {time}':
    'noria 正在停止：不再接受新客户端，并等待打开的隧道直到 {time}',
  'no listener is open': '没有打开的监听器',
  'Add a listener to the configuration, and run noria reload.': '在配置中添加监听器，然后运行 noria reload。',
  'all workers are down; restarting': '所有工作进程都已退出，正在重启',
  'If workers keep exiting, read the reason in the log.': '如果工作进程不断退出，请在日志中查看原因。',
  "noria draws nothing while the fleet's store is lost: {reason}":
    '与集群的存储断开期间，noria 不提取：{reason}',
  'Check the store and fleet.url; noria check says what is wrong.':
    '检查存储和 fleet.url；noria check 会说明问题。',
  '{n} of {all} workers run; noria restarts the others':
    '{all} 个工作进程中有 {n} 个在运行；noria 正在重启其余的',
  'Check upstream.protocol and upstream.auth of the source, and whether this machine can reach its members.':
    '检查来源的 upstream.protocol 和 upstream.auth，以及本机能否连接它的成员。',
  'in the last {n} client requests, every member that noria tried has failed':
    '最近 {n} 个客户端请求中，noria 试过的成员全都失败了',
  'the service has not answered for {time}': '服务已有 {time}没有答复',
  "Check service.baseUrl, or the source's own baseUrl, host or url, and the network of this machine.":
    '检查 service.baseUrl，或来源的 baseUrl、host 或 url，以及本机的网络。',
  '1 member is usable': '1 个成员可用',
  '{n} members are usable': '{n} 个成员可用',
  '{reason}, but not for {sites}': '{reason}，但不能用于 {sites}',
  'every exit is banned for {sites}': '所有出口都被 {sites} 封禁',
  'Slow down the clients, or set spacing, rate or drawsForBans of the site in targets; noria sites says when the next exit is free.':
    '放慢客户端，或在 targets 中设置该站点的 spacing、rate 或 drawsForBans；noria sites 显示下一个出口何时可用。',
  'the first draw is in progress; clients wait for its members': '正在进行首次提取，客户端会等待它的成员',
  'no recent clients; the next client starts a draw': '最近没有客户端；下一个客户端会开始提取',
  'no member is usable yet; noria checks {n} drawn member{s}':
    '还没有可用的成员；noria 正在检测 {n} 个提取到的成员',
  'no member is usable; a draw is in progress': '没有可用的成员；正在提取',
  'no member is usable; the next draw can start in {time}': '没有可用的成员；{time}后可以提取',
  'no source can draw': '没有可以提取的来源',
  'noria has been in this state for {time}; {next}': '已持续 {time}；{next}',
  'noria has been in this state for {time}': '已持续 {time}',
  'noria does not retry by itself: it waits for you': 'noria 不会自行重试：请你处理',
  'noria does not retry by itself: it waits for you or a client request':
    'noria 不会自行重试：等待你处理，或等待客户端请求',
  'noria tries again now': 'noria 正在重试',
  'noria tries again in {time}': 'noria 将在 {time}后重试',
  'What to do: {advice}': '怎么办：{advice}',
  'The service says: ': '服务返回：',
  'Details: ': '详情：',
  'serving: {reason}': '工作正常：{reason}',
  'starting: {reason}': '正在启动：{reason}',
  'idle: {reason}': '空闲：{reason}',
  'degraded: {reason}': '可以工作，但有问题：{reason}',
  'not serving: {reason}': '无法为客户端服务：{reason}',

  // Why a client is refused.
  'the user has used {n} bytes today, and bytesPerDay is {limit}':
    '该用户今天已使用 {n} 字节，bytesPerDay 是 {limit}',
  'the user has used {n} members today, and membersPerDay is {limit}':
    '该用户今天已使用 {n} 个成员，membersPerDay 是 {limit}',
  'the user has {n} requests open, and tunnels is {limit}': '该用户有 {n} 个打开的请求，tunnels 是 {limit}',
  'the user sends more than {n} requests a minute': '该用户每分钟发送的请求超过 {n} 个',
  'the user may only use source {source}': '该用户只能使用来源 {source}',
  'Waited {n} s for a member that can serve this request.': '等待 {n} 秒，没有能够服务该请求的成员。',
  'No source that can serve this request will have a member soon.': '能够服务该请求的来源近期都不会有成员。',
  'No member is free, and {n} other clients, the maximum, already wait for one.':
    '没有空闲的成员，并且已有 {n} 个客户端（上限）在等待。',
  'No member that can serve this request is free.': '能够服务该请求的成员都没有空闲。',
  'The client disconnected while it waited for a member.': '客户端在等待成员时断开了连接。',
  'The target has banned the exit of this fixed session.': '目标封禁了该固定会话的出口。',
  'The member of this fixed session does not fit the routing options.': '该固定会话的成员不符合路由选项。',
  'ttl is {given}, but a session may be idle for at most {max} (rotation.maxSessionTtl).':
    'ttl 是 {given}，而会话最多可以空闲 {max}（rotation.maxSessionTtl）。',
  'protocol is {protocol}, but {members}.': 'protocol 是 {protocol}，但{members}。',
  'members of source {source} speak {protocol}': '来源 {source} 的成员使用 {protocol}',
  'life is {time}, but {members}.': 'life 是 {time}，但{members}。',
  'members of source {source} live for at most {time}': '来源 {source} 的成员最多有效 {time}',
  'adr looks like a country code, but locations are words of the service (province, city, carrier).':
    'adr 像国家代码，而地区是服务使用的词（省份、城市、运营商）。',
  'Omit adr, or use a word of a location; run noria members to list the locations.':
    '去掉 adr，或使用地区中的词；运行 noria members 列出地区。',
  'adr matches no member that noria could draw: {sources}.': 'adr 不符合 noria 能提取的任何成员：{sources}。',
  'source {source} has no location in Latin letters': '来源 {source} 没有拉丁字母的地区',
  'source {source} excludes this location by its params (adr or nadr)':
    '来源 {source} 的 params（adr 或 nadr）排除了该地区',
  'the client sent no credentials': '客户端没有发送认证信息',
  'wrong credentials': '认证信息错误',
  'the request has already passed this noria, whose front proxy sends it back':
    '该请求已经过本 noria，又被它的前置代理送回',
  'the target is an address of noria itself': '目标是 noria 自己的地址',
  '{n} attempts with wrong credentials for this user from this address within a minute':
    '该地址一分钟内对该用户发送了 {n} 次错误的认证信息',
  'the allow list of the listener does not contain the address of this client':
    '监听器的 allow 不包含该客户端的地址',
  'the port of the target is in denyTargets': '目标的端口在 denyTargets 中',
  'the network of the target is in denyTargets': '目标的网络在 denyTargets 中',
  'the target is a private address, which denyTargets excludes': '目标是内网地址，denyTargets 不允许',
  'the host of the target is in denyTargets': '目标的主机在 denyTargets 中',
  'the domain of the target is in denyTargets': '目标的域名在 denyTargets 中',
  'the target is a name of this machine or its network, which denyTargets excludes':
    '目标是本机或其网络中的名称，denyTargets 不允许',
  'the connection does not begin with a header of the PROXY protocol': '连接没有以 PROXY 协议头开始',
  '{n} client connections are open; maxConnections allows no more':
    '已有 {n} 个客户端连接；maxConnections 不允许更多',
  'this listener does not accept {protocol}': '该监听器不接受 {protocol}',
  'this is a port of noria, a forward proxy, and not a web site: set this port as the proxy of your client':
    '这是正向代理 noria 的端口，不是网站：请把它设为客户端的代理',
  'an https URL needs CONNECT, not a request in absolute form':
    'https URL 需要 CONNECT，不能用绝对地址形式的请求',
  'the request target does not start with http://; use CONNECT or SOCKS for other protocols':
    '请求的目标不以 http:// 开头；其他协议请使用 CONNECT 或 SOCKS',
  'the URL has no valid host, or its port is not between 1 and 65535':
    'URL 没有有效的主机，或端口不在 1 到 65535 之间',
  'a TRACE with Max-Forwards: 0 ends at noria, which does not reflect requests':
    'Max-Forwards: 0 的 TRACE 到 noria 为止，noria 不回送请求',
  'the target replied 407, which only a proxy may send': '目标返回了 407，只有代理可以返回它',
  'noria.invalid answers only plain HTTP on port 80: use http://noria.invalid/':
    'noria.invalid 只答复 80 端口的明文 HTTP：使用 http://noria.invalid/',
  'noria.invalid does not answer web pages (Origin, Referer, Sec-Fetch-Site)':
    'noria.invalid 不答复网页（Origin、Referer、Sec-Fetch-Site）',
  'there is no session with this name that may move': '没有可以换成员的同名会话',
  'noria.invalid has GET /, POST /rotate, and GET or POST /banned and /ok':
    'noria.invalid 有 GET /、POST /rotate，以及 GET 或 POST /banned 和 /ok',
  'noria knows no request with this session or tag': 'noria 没有该会话或标记的请求',
  'host is not a host name, or it has a port': 'host 不是主机名，或带有端口',
  'for is not a duration: write 30s, 10m or 2h, at most 7 days':
    'for 不是时长：写成 30s、10m 或 2h，最多 7 天',
  'this client used several sites, or none: add ?host=NAME':
    '该客户端使用了多个站点，或没有使用：请加上 ?host=主机名',
  'the user name contains an unknown key; {keys}': '用户名中有未知的键；{keys}',
  'an X-Noria header has an unknown key; {keys}': '某个 X-Noria 头有未知的键；{keys}',
  'the keys are {keys}': '可用的键是 {keys}',
  'did you mean {key}? The keys are {keys}': '是否想写 {key}？可用的键是 {keys}',
  'key {key} is given twice in the user name': '用户名中的键 {key} 出现了两次',
  'key {key} has no value in the user name': '用户名中的键 {key} 没有值',
  'key {key} is given twice in headers': '请求头中的键 {key} 出现了两次',
  'invalid value for key {key} {where}: expected {what}': '{where}键 {key} 的值无效：应为 {what}',
  'in the user name': '用户名中的',
  'in a header': '请求头中的',
  '1 to 64 of letters, digits, `_`, `.` and `~`': '1 到 64 个字母、数字、`_`、`.` 或 `~`',
  'a duration': '时长',
  "a source's name": '来源的名称',
  'a keyword of at most 64 characters, URL-encoded where needed, `_` for a space':
    '最多 64 个字符的关键词，需要时用 URL 编码，空格写作 `_`',
  'yes or no': 'yes 或 no',
  'the value of the key source is not the name of a configured source': '键 source 的值不是已配置来源的名称',
  'the value of the key source is {source}, but this listener uses only the source {own}':
    '键 source 的值是 {source}，但该监听器只使用来源 {own}',
  'the key {key} needs a session: add session-NAME': '键 {key} 需要会话：请加上 session-名称',
  waiting: '等待',
  backoff: '稍后重试',
  paused: '已暂停',
  suspended: '暂缓提取',
  halted: '已停止',
  drawing: '提取中',
  ready: '充足',
  'noria is shutting down': 'noria 正在停止',
  'No source with this name is configured. Run noria status to list the sources.':
    '没有配置这个名称的来源。运行 noria status 列出来源。',
  '{n} member{s} tried in {ms} ms: {list}': '在 {ms} 毫秒内试了 {n} 个成员：{list}',
  '{n} member{s} tried in {ms} ms': '在 {ms} 毫秒内试了 {n} 个成员',
  '{n} could not be reached': '{n} 个无法连接',
  '{n} did not answer in time': '{n} 个没有及时答复',
  '{n} closed the connection': '{n} 个关闭了连接',
  '{n} sent an invalid proxy response': '{n} 个的答复不符合代理协议',
  '{n} refused the request': '{n} 个拒绝了请求',
  '{n} required other credentials': '{n} 个要求其他认证信息',
  '{n} failed at the front proxy': '{n} 个在前置代理处失败',
  '{n} got no answer from the front proxy': '{n} 个没有得到前置代理的答复',
  '{n} cannot address this target': '{n} 个无法表示该目标的地址',
  '{n} could not reach the target': '{n} 个无法到达目标',
  '{sourceName}: {reason}': '{sourceName}：{reason}',
  '{n} failed': '{n} 个失败',
  '{n} min': '{n} 分钟',
  '{n} h': '{n} 小时',
  '{n} s': '{n} 秒',
};

/** Returns the language of an Accept-Language header, or of a locale such as `zh_CN.UTF-8`. */
export function languageOf(preference: string | undefined): Language {
  return /^\s*zh\b/i.test((preference ?? '').replace('_', '-')) ? 'zh-CN' : 'en';
}

export function translate(text: string, language: Language): string {
  return language === 'en' || text === '' || text.length > MAX_TEXT_LENGTH ? text : inChinese(text);
}

export function faultTexts(code: FaultCode, language: Language): { summary: string; advice: string } {
  const { summary, advice, chinese } = FAULTS[code];
  return language === 'en' ? { summary, advice } : { summary: chinese[0], advice: chinese[1] };
}

/** The templates are matched against noria's own texts, which are short; a longer text comes from elsewhere. */
const MAX_TEXT_LENGTH = 1_000;
interface Template {
  readonly literals: readonly string[];
  readonly names: readonly string[];
  readonly chinese: string;
}

/** The values `{n}` and `{code}` are numbers, `{front}` and `{server}` have one clause, and `{sourceName}` one word. Every text fits the others. */
const NUMBER = /^[\d.,]+$/;
const CLAUSE_END = /[:;,] /;
const SOURCE_NAME = /^[\w.]+$/;

/** What separates two clauses, in English and in Chinese, and what ends the second one. */
const CLAUSES = [
  ['; ', '；', ''],
  [', ', '，', ''],
  [' (', '（', ')'],
] as const;

let exact: Map<string, string> | undefined;
let templates: readonly Template[] = [];

function load(): Map<string, string> {
  const faults = Object.values(FAULTS).flatMap(({ summary, advice, chinese }) => [
    [summary, chinese[0]] as const,
    [advice, chinese[1]] as const,
  ]);
  const all = [...faults, ...Object.entries(SENTENCES)];
  // a template that begins with a value fits many texts, and fewer if it is a number, so the others come first
  const startsWithValue = ([english]: readonly [string, string]) =>
    Number(english.startsWith('{')) + Number(/^\{(?!n\}|code\})/.test(english));
  templates = all
    .filter(([english]) => english.includes('{'))
    .toSorted((one, other) => startsWithValue(one) - startsWithValue(other))
    .flatMap(templatesOf);
  return new Map(all.map(([english, chinese]) => [keyOf(english), chinese]));
}

function templatesOf([english, chinese]: readonly [string, string]): Template[] {
  const forms = english.includes('{s}')
    ? [english.replace('{s}', 's'), english.replace('{s}', '')]
    : [english];
  return forms.map((form) => {
    const parts = keyOf(form).split(/\{(\w+)\}/);
    return {
      literals: parts.filter((_part, at) => at % 2 === 0).map((part) => part.toLowerCase()),
      names: parts.filter((_part, at) => at % 2 === 1),
      chinese,
    };
  });
}

/** A text is the same with and without its capital letter and its full stop. */
function keyOf(text: string): string {
  const stem = text.replace(/\.$/, '');
  return stem.slice(0, 1).toLowerCase() + stem.slice(1);
}

function inChinese(text: string): string {
  const whole = inChineseAsWhole(text);
  if (whole !== undefined) return whole;
  const sentences = text.split(/(?<=[.!?]) (?=\S)/);
  let result = '';
  for (let at = 0; at < sentences.length; ) {
    let end = sentences.length;
    let found: string | undefined;
    for (; end > at && found === undefined; end -= 1) {
      if (end - at < sentences.length) found = inChineseAsWhole(sentences.slice(at, end).join(' '));
    }
    const next = found === undefined ? at + 1 : end + 1;
    result += found ?? `${result === '' ? '' : ' '}${sentences[at] ?? ''}`;
    at = next;
  }
  return result;
}

function inChineseAsWhole(text: string): string | undefined {
  exact ??= load();
  const own = text.replace(/\.$/, '');
  const chinese = exact.get(keyOf(text)) ?? fromTemplate(own) ?? fromClauses(own);
  if (chinese === undefined) return undefined;
  const stem = chinese.replace(/。$/, '');
  return text.endsWith('.') ? `${stem}。` : stem;
}

function fromTemplate(stem: string): string | undefined {
  const lower = stem.toLowerCase();
  for (const template of templates) {
    const values = valuesIn(stem, lower, template);
    if (values === undefined) continue;
    return template.chinese.replaceAll(/\{(\w+)\}/g, (_tag, name: string) => inChinese(values[name] ?? ''));
  }
  return undefined;
}

/** Translates `WHAT (DETAIL)`, `ONE; OTHER` and `ONE, OTHER` if the first clause is in the table. */
function fromClauses(stem: string): string | undefined {
  for (const [separator, chinese, end] of CLAUSES) {
    const at = stem.indexOf(separator);
    if (at <= 0 || !stem.endsWith(end)) continue;
    const first = inChineseAsWhole(stem.slice(0, at));
    if (first === undefined) continue;
    const rest = inChinese(stem.slice(at + separator.length, stem.length - end.length));
    return `${first}${chinese}${rest}${end === '' ? '' : '）'}`;
  }
  return undefined;
}

/** Finds the values of a template in a text. Takes the first place of each literal, so it needs no second try. */
function valuesIn(
  stem: string,
  lower: string,
  { literals, names }: Template,
): Record<string, string> | undefined {
  const [first = ''] = literals;
  if (!lower.startsWith(first)) return undefined;
  const values: Record<string, string> = {};
  let from = first.length;
  for (const [at, name] of names.entries()) {
    const literal = literals[at + 1] ?? '';
    const isLast = at === names.length - 1;
    if (isLast && !lower.endsWith(literal)) return undefined;
    const to = isLast ? lower.length - literal.length : lower.indexOf(literal, from + 1);
    if (to <= from) return undefined;
    const value = stem.slice(from, to);
    if ((name === 'n' || name === 'code') && !NUMBER.test(value)) return undefined;
    if ((name === 'front' || name === 'server') && CLAUSE_END.test(value)) return undefined;
    if (name === 'sourceName' && !SOURCE_NAME.test(value)) return undefined;
    values[name] = value;
    from = to + literal.length;
  }
  return values;
}
