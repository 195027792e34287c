/**
 * The ways in which `npm run sabotage` breaks noria, and who must notice. Each row replaces one text, which occurs once in its file:
 * whoever changes that code moves the row along. Every promise of docs/reliability.md has a row, named in `breaks`.
 */
export interface Sabotage {
  /** The family, and what noria then does wrong. */
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly by: string;
  /** A test file, or `chaos`: half a minute of chaos with one noria. */
  readonly noticedBy: string;
  /** One of the rows that `.ci/run` plays: quick, and each of another family. */
  readonly quick: boolean;
}

type Row = readonly [name: string, file: string, find: string, by: string, noticedBy: string, when?: 'quick'];

const START = '  relay.start(early, memberConnection.early);';
const LEAK = (what: string) => `${START}\n  ${what};`;

/** Counts the calls of one place. */
const EVERY = (count: number) =>
  `((globalThis as { calls?: number }).calls = ((globalThis as { calls?: number }).calls ?? 0) + 1) % ${count} === 0`;

const ROWS: readonly Row[] = [
  [
    'leaks: a descriptor for each tunnel',
    'src/listener/tunnel.ts',
    START,
    LEAK("process.getBuiltinModule('node:fs').openSync('/dev/null', 'r')"),
    'test/listener/soak.test.ts',
    'quick',
  ],
  [
    'leaks: 20 kB of buffer for each tunnel',
    'src/listener/tunnel.ts',
    START,
    LEAK('((globalThis as { kept?: Buffer[] }).kept ??= []).push(Buffer.alloc(20_000))'),
    'test/listener/soak.test.ts',
  ],
  [
    'leaks: a descriptor for each tunnel, in a whole noria',
    'src/listener/tunnel.ts',
    START,
    LEAK("process.getBuiltinModule('node:fs').openSync('/dev/null', 'r')"),
    'chaos',
  ],
  [
    'leaks: 20 kB of buffer for each tunnel, in a whole noria',
    'src/listener/tunnel.ts',
    START,
    LEAK('((globalThis as { kept?: Buffer[] }).kept ??= []).push(Buffer.alloc(20_000))'),
    'chaos',
  ],
  [
    'expiry: members serve for a second after their end, in a whole noria',
    'src/pool/candidates.ts',
    'endsAt - this.#settings.safetyMarginMs);',
    'endsAt + 1_000);',
    'chaos',
  ],
  [
    'pace: the interval is half as long, in a whole noria',
    'src/refill/pace-rule.ts',
    '  return intervalMs * widening(refusals, now) + PACE_SLACK_MS;',
    '  return 0.5 * intervalMs * widening(refusals, now) + PACE_SLACK_MS;',
    'chaos',
  ],
  [
    'bytes: two are swapped in every fiftieth chunk, in a whole noria',
    'src/listener/relay.ts',
    '  sink.write(chunk);\n',
    `  if (${EVERY(50)}) chunk.subarray(0, 2).reverse();\n  sink.write(chunk);\n`,
    'chaos',
  ],
  [
    'bytes: two are swapped in every fiftieth chunk',
    'src/listener/relay.ts',
    '  sink.write(chunk);\n',
    `  if (${EVERY(50)}) chunk.subarray(0, 2).reverse();\n  sink.write(chunk);\n`,
    'test/listener/soak.test.ts',
    'quick',
  ],
  [
    'bytes: the end of a direction is not passed on',
    'src/listener/relay.ts',
    '    else side.end();',
    '    else if (side.destroyed) side.end();',
    'test/listener/relay.test.ts',
  ],
  [
    'bytes: a slow reader does not stop the sender',
    'src/listener/relay.ts',
    '  source.pause();\n',
    '',
    'test/listener/relay.test.ts',
  ],
  [
    'bytes: a reset of the member looks like a clean end',
    'src/listener/relay.ts',
    '      this.#resetClient();',
    '      this.#client.end();',
    'test/listener/relay.test.ts',
  ],
  [
    'idle: tunnels never end',
    'src/listener/relay.ts',
    '    this.#idleTimeout = deadlines.set(idleTimeoutMs, this.#destroy, startedAt);',
    '    this.#idleTimeout = deadlines.set(idleTimeoutMs, () => {}, startedAt);',
    'test/listener/relay.test.ts',
  ],
  [
    'bans: every tenth has no effect',
    'src/pool/sites.ts',
    '    pair.untilAt = Math.round(now + Math.min(ban.maxMs, forMs ?? pair.forMs));',
    '    if (site.banCount % 10 !== 0) pair.untilAt = Math.round(now + Math.min(ban.maxMs, forMs ?? pair.forMs));',
    'test/pool/sites.test.ts',
  ],
  [
    'bans: a report bans the exit of an attempt that was too slow',
    'src/pool/leases.ts',
    'if (late !== true) this.#clients.used(request, member);',
    'this.#clients.used(request, member);',
    'test/pool/clients.test.ts',
  ],
  [
    'bans: a ban does not double',
    'src/pool/sites.ts',
    'pair.forMs === 0 ? ban.forMs : 2 * pair.forMs',
    'pair.forMs === 0 ? ban.forMs : pair.forMs',
    'test/pool/sites.test.ts',
  ],
  [
    'bans: of one user count for all',
    'src/pool/sites.ts',
    'const shared = user === undefined || site.isBannedForOther(exit, user, now);',
    'const shared = user !== null;',
    'test/pool/sites.test.ts',
  ],
  [
    'bans: an exit that is banned is picked',
    'src/pool/pick.ts',
    'if (pair.untilAt > this.now) return this.#unfitUntil(pair.untilAt);',
    '',
    'test/pool/sites.test.ts',
    'quick',
  ],
  [
    'leases: every hundredth never ends',
    'src/pool/leases.ts',
    '    this.#open.delete(id);\n',
    '    if (id % 100 === 99) return;\n    this.#open.delete(id);\n',
    'test/pool/invariants.test.ts',
  ],
  [
    'leases: a fault of a member is not recorded',
    'src/pool/leases.ts',
    "    if (blame === 'member') this.#members.recordFault(member, { fault, leasedAt }, now);",
    '',
    'test/pool/quarantine.test.ts',
  ],
  [
    'sessions: one in fifty requests moves its session',
    'src/pool/pick.ts',
    "    if (current.bucket !== 'expiring') return current;",
    `    if (current.bucket !== 'expiring' && !(${EVERY(50)})) return current;`,
    'test/pool/invariants.test.ts',
  ],
  [
    'sessions: an exclusive one shares its exit',
    'src/pool/pick.ts',
    '    return holder !== undefined && holder !== this.#session;',
    '    return false;',
    'test/pool/session-promises.test.ts',
    'quick',
  ],
  [
    'sessions: a fixed one moves',
    'src/pool/pick.ts',
    '    if (session?.isFixed === true && session.member !== undefined)',
    '    if (session?.isFixed === true && session.name === "")',
    'test/pool/session-promises.test.ts',
  ],
  [
    'sessions: one client may have any number',
    'src/pool/sessions.ts',
    '    while (owner !== NO_OWNER && this.#clients.countOf(owner) >= maxSessionsPerClient) {',
    '    while (owner !== NO_OWNER && this.#clients.countOf(owner) >= 10 * maxSessionsPerClient) {',
    'test/pool/session-limits.test.ts',
  ],
  [
    'pace: the interval is a tenth too short',
    'src/refill/pace-rule.ts',
    '  return intervalMs * widening(refusals, now) + PACE_SLACK_MS;',
    '  return 0.9 * intervalMs * widening(refusals, now) + PACE_SLACK_MS;',
    'test/refill/pace-rule.test.ts',
    'quick',
  ],
  [
    'pace: an old claim may still be sent',
    'src/refill/pace.ts',
    "    if (this.state === 'unused' && ageMs < PERMIT_VALID_MS) {",
    "    if (this.state === 'unused') {",
    'test/refill/pace.test.ts',
  ],
  [
    'pace: a call in flight does not count',
    'src/refill/pace-rule.ts',
    "  const countedMs = call.fate === 'pending' ? Math.max(0, sinceMs) : sinceMs;",
    "  const countedMs = call.fate === 'pending' ? gapMs : sinceMs;",
    'test/refill/pace-rule.test.ts',
  ],
  [
    'pace: a refusal of the service does not widen the interval',
    'src/refill/pace-rule.ts',
    '    widening: Math.min(MAX_WIDENING, widening(refusals, now) * WIDEN_STEP),',
    '    widening: 1,',
    'test/refill/pace-rule.test.ts',
  ],
  [
    'expiry: a member is used for a second after its end',
    'src/pool/candidates.ts',
    'endsAt - this.#settings.safetyMarginMs);',
    'endsAt + 1_000);',
    'test/pool/invariants.test.ts',
  ],
  [
    'expiry: a member that has ended joins',
    'src/pool/members.ts',
    '    return endsAt - this.settings.safetyMarginMs <= now;',
    '    return endsAt < 0;',
    'test/pool/lifetimes.test.ts',
  ],
  [
    'fail closed: every tenth connection goes to the target itself',
    'src/dialer/attempt.ts',
    'this.#parts.openSocket(this.lease, use, marks)',
    `this.#parts.openSocket(${EVERY(10)} ? { ...this.lease, host: '127.0.0.1', port: 1 } : this.lease, use, marks)`,
    'test/dialer/dialer.test.ts',
  ],
  [
    'fail closed: NAT64 addresses are no private targets',
    'src/core/networks.ts',
    '  if (at(0) === 0x64 && at(1) === 0xff9b) return [last];',
    '',
    'test/listener/deny-targets.test.ts',
  ],
  [
    'fail closed: 6to4 addresses are no private targets',
    'src/core/networks.ts',
    '  if (at(0) === 0x2002) return [quad(at(1), at(2)), ...inner];',
    '',
    'test/listener/deny-targets.test.ts',
  ],
  [
    'fail closed: the SMTP ports are open',
    'src/listener/access.ts',
    "      if (rule.kind === 'smtp') return SMTP_PORTS.map((port) => ({ from: port, to: port }));",
    "      if (rule.kind === 'smtp') return [];",
    'test/listener/deny-targets.test.ts',
  ],
  [
    'fail closed: passwords are compared by their first 16 letters',
    'src/listener/access.ts',
    "  return createHash('sha256').update(text, 'utf8').digest();",
    "  return createHash('sha256').update(text.slice(0, 16), 'utf8').digest();",
    'test/listener/access.test.ts',
    'quick',
  ],
  [
    'fail closed: guesses of a password are not limited',
    'src/listener/access.ts',
    '    if (window === undefined || window.count < MAX_WRONG_ATTEMPTS) return 0;',
    '    if (window?.count !== 0) return 0;',
    'test/listener/access.test.ts',
  ],
  [
    'fail closed: any client address is admitted',
    'src/listener/access.ts',
    'this.#networks.has(remoteAddress));',
    "remoteAddress !== '');",
    'test/listener/access.test.ts',
  ],
  [
    'secrets: are not masked in texts',
    'src/core/secret.ts',
    "  return text.replace(new RegExp(longestFirst.join('|'), 'gi'), MASK);",
    '  return longestFirst.length === 0 ? MASK : text;',
    'test/core/secret.test.ts',
    'quick',
  ],
  [
    'secrets: are in the JSON of a configuration',
    'src/core/secret.ts',
    '  toJSON(): string {\n    return MASK;',
    '  toJSON(): string {\n    return this.reveal();',
    'test/core/secret.test.ts',
  ],
  [
    'state: a symbolic link is followed',
    'src/state/state-files.ts',
    '    found = await lstat(path);',
    '    found = await stat(path);',
    'test/state/foreign-files.test.ts',
  ],
  [
    'state: two processes write the same version',
    'src/state/state-files.ts',
    '      await link(draft, this.#path(number));',
    '      await rename(draft, this.#path(number));',
    'test/state/versioned-file.test.ts',
  ],
  [
    'state: the folder is locked by no one',
    'src/state/folder.ts',
    '    if (owner !== null && isAlive(owner, boot)) throw locked(folder, owner);',
    '    if (owner !== null && boot.id === "") throw locked(folder, owner);',
    'test/state/folder.test.ts',
    'quick',
  ],
  [
    'state: the lock of a dead process stays',
    'src/state/moment.ts',
    '  if (!exists(pid)) return false;',
    '  if (!exists(pid)) return true;',
    'test/state/folder.test.ts',
  ],
  [
    'fleet: a claim that another replica has outrun counts',
    'src/fleet/redis/pace-store.ts',
    "if epoch ~= ARGV[5] or (redis.call('HGET', KEYS[2], 'version') or '0') ~= ARGV[6] then",
    'if epoch ~= ARGV[5] then',
    'test/fleet/redis/redis-pace-store.test.ts',
  ],
  [
    'fleet: what nobody has signed is believed',
    'src/fleet/redis/instance-log.ts',
    "    if (!this.#seal.isValid(mac, 'log', by, text)) {",
    "    if (mac === 'none') {",
    'test/fleet/redis/untrusted-store.test.ts',
  ],
  [
    'fleet: a session is bound in two replicas',
    'src/fleet/redis/session-store.ts',
    '    if (found === undefined || found.session.name !== session.name) return proposed;',
    "    if (found === undefined || found.session.name !== '') return proposed;",
    'test/fleet/redis/session-agreement.test.ts',
  ],
  [
    'limits: a user has one tunnel too many',
    'src/listener/user-limits.ts',
    'counter.open >= Math.ceil(tunnels / processes)',
    'counter.open > Math.ceil(tunnels / processes)',
    'test/listener/user-limits.test.ts',
    'quick',
  ],
  [
    'limits: the tokens of a rate never end',
    'src/listener/user-limits.ts',
    '      counter.tokens -= 1;\n',
    '',
    'test/listener/user-limits.test.ts',
  ],
  [
    'framing: Content-Length and Transfer-Encoding may both be there',
    'src/listener/http/header-fields.ts',
    "    if (lengths.length > 0) return badRequest('the message has both Content-Length and Transfer-Encoding');",
    '',
    'test/listener/http/refusal-reasons.test.ts',
  ],
  [
    'limits: a bounded map holds one entry too many',
    'src/core/bounded-map.ts',
    '    if (!this.delete(key) && this.size >= this.#maxSize) {',
    '    if (!this.delete(key) && this.size > this.#maxSize) {',
    'test/core/bounded-map.test.ts',
  ],
  [
    'deadline: a timer fires up to a tick too early',
    'src/core/deadlines.ts',
    '    const tick = Math.ceil((now + ms) / this.#tickMs);',
    '    const tick = Math.floor((now + ms) / this.#tickMs);',
    'test/core/deadlines.test.ts',
  ],
  [
    'fail closed: NAT64 addresses hide the address in them',
    'src/core/networks.ts',
    '  if (at(0) === 0x64 && at(1) === 0xff9b) return [last]; // NAT64, 64:ff9b::/96 (RFC 6052)',
    '  if (at(0) === 0x64 && at(1) === 0xff9b) return []; // NAT64, 64:ff9b::/96 (RFC 6052)',
    'test/core/networks.test.ts',
  ],
  [
    'secrets: are not masked where they are URL-encoded',
    'src/core/secret.ts',
    '  const forms = values.flatMap((value) => [value, encodeURIComponent(value)]);',
    '  const forms = values.flatMap((value) => [value]);',
    'test/core/secret.test.ts',
  ],
  [
    'close: what was opened first closes first',
    'src/core/ownership.ts',
    '    for (const { name, close } of this.#owned.reverse()) {',
    '    for (const { name, close } of this.#owned) {',
    'test/core/ownership.test.ts',
  ],
  [
    'order: the heap takes the later child',
    'src/core/heap.ts',
    '      if (right !== undefined && right.key < child.key) {',
    '      if (right !== undefined && right.key > child.key) {',
    'test/core/heap.test.ts',
  ],
  [
    'order: an earlier timer does not replace a later one',
    'src/core/clock.ts',
    '    if (at >= this.dueAt) return;',
    '    if (this.dueAt < Number.POSITIVE_INFINITY) return;',
    'test/core/earliest-timer.test.ts',
  ],
  [
    'sandbox: a limit of calls allows one more',
    'src/sandbox/instance.ts',
    '    if (this.#starts.length >= this.#limit.calls) return false;',
    '    if (this.#starts.length > this.#limit.calls) return false;',
    'test/sandbox/refusals.test.ts',
  ],
  [
    'sandbox: every client gets the lock of another',
    'src/sandbox/instance.ts',
    '    const isFree = this.#client === undefined || now - this.#seenAt >= CLIENT_SILENCE_MS;',
    '    const isFree = this.#client === undefined || now - this.#seenAt >= 0;',
    'test/sandbox/client-lock.test.ts',
  ],
  [
    'sandbox: a draw may exceed the number of members',
    'src/sandbox/members.ts',
    'Math.min(query.count, query.newAllowed, free)',
    'Math.min(query.count, query.newAllowed)',
    'test/sandbox/selection.test.ts',
  ],
  [
    'success: a dial tries one member only',
    'src/dialer/dial.ts',
    '    else if (this.#mayTryAnother()) this.#acquireNext();',
    '',
    'test/dialer/dialer.test.ts',
  ],
  [
    'event loop: every twentieth tunnel blocks it, in a whole noria',
    'src/listener/tunnel.ts',
    START,
    LEAK(`for (const end = ${EVERY(20)} ? performance.now() + 300 : 0; performance.now() < end; );`),
    'chaos',
  ],
  [
    'crash: an error in every hundredth tunnel ends the process',
    'src/listener/tunnel.ts',
    START,
    LEAK(`if (${EVERY(100)}) setImmediate(() => Promise.reject(new Error('sabotage')))`),
    'chaos',
  ],
  [
    'deadline: a dial may last twice as long',
    'src/dialer/dial.ts',
    '    this.#deadline = this.#parts.deadlines.set(deadlineMs, () =>',
    '    this.#deadline = this.#parts.deadlines.set(2 * deadlineMs, () =>',
    'test/dialer/dialer.test.ts',
    'quick',
  ],
];

export const SABOTAGES: readonly Sabotage[] = ROWS.map(([name, file, find, by, noticedBy, when]) => ({
  name,
  file,
  find,
  by,
  noticedBy,
  quick: when === 'quick',
}));

/** The source with the sabotage. @throws Error if the text to replace does not occur exactly once. */
export function applied({ name, file, find, by }: Sabotage, source: string): string {
  const found = source.split(find).length - 1;
  if (found !== 1)
    throw new Error(`"${name}" replaces a text that occurs ${found} times in ${file}: ${find}`);
  return source.replace(find, () => by);
}
