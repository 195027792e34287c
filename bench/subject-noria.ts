/** noria with its default settings, on the members of the benchmark's world. */
import { parseConfig } from '../src/config/load.ts';
import { collectGarbageOfStart, tuneForShortLives } from '../src/core/engine.ts';
import { EventBus } from '../src/core/events.ts';
import { createLog } from '../src/core/log.ts';
import { startDaemon } from '../src/daemon/daemon.ts';
import { until } from '../test/support/until.ts';
import { MEMBER_LOGIN } from './socks-member.ts';
import { serveSubject } from './subject.ts';

tuneForShortLives(); // as `noria run` does

serveSubject(async (options) => {
  const { world, protocol, members, usable, workers = 1, login = false, storePort, unrecorded } = options;
  if (unrecorded) ignoreRequests();
  const product = protocol === 'http' ? 'short-classic' : 'short-socks5';
  const { username, password } = MEMBER_LOGIN;
  const auth = login ? `{ username: "${username}", password: "${password}" }` : 'auto';
  const config = parseConfig(
    `
service: { baseUrl: "http://127.0.0.1:${world.servicePort}" }
sources: [{ name: bench, product: ${product}, instance: "202611210001", akey: "0123456789abcdef", params: { count: ${members} }, size: ${members}, upstream: { protocol: ${protocol}, auth: ${auth} } }]
pool: { fill: size, allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:0", denyTargets: [], maxConnections: 20000 }]
admin: { address: "127.0.0.1:0" }
state: off
log: { level: info, format: json }
workers: ${workers}
${storePort === undefined ? '' : `fleet: { url: "redis://127.0.0.1:${storePort}" }`}
`,
    'bench.yaml',
    { env: {} },
  );
  const log = createLog({ ...config.log, destination: { write: () => {} } });
  const daemon = await startDaemon({ config, log });
  collectGarbageOfStart(); // as `noria run` does
  await until('the members are ready', () => daemon.control.status().pool.ready >= usable, 20_000);
  return Number(daemon.addresses.listeners[0]?.split(':')[1]);
});

/** Without subscribers, noria builds no records. */
function ignoreRequests(): void {
  const { on } = EventBus.prototype;
  EventBus.prototype.on = function (name, subscriber) {
    if (name.startsWith('request.')) return { [Symbol.dispose]: () => {} };
    return on.call(this, name, subscriber as never);
  };
}
