/** A noria with proxyPool and one source. */
import { freePorts } from '../support/free-port.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';

export const PORTS = 6;

export async function startWithPorts({ members = 12, size = PORTS, more = '', listeners = '' } = {}) {
  const first = await freePorts(PORTS);
  const sandbox = await openTestSandbox({
    members,
    lifetimeMs: 600_000,
    instances: [{ product: 'short-pure' }],
  });
  const options = {
    sources: [
      sourceLine(sandbox, 'pure', 'short-pure', `interval: 200ms, size: ${size}, params: { count: ${size} }`),
    ],
    more: `proxyPool: { address: "127.0.0.1:0", ports: ${first}-${first + PORTS - 1} }\n${more}`,
    listeners: `listeners: [{ address: "127.0.0.1:0", denyTargets: [] }${listeners.replaceAll('FIRST-LAST', `${first}-${first + PORTS - 1}`)}]`,
  };
  const noria = await startNoria(options);
  await untilReady(noria, size);
  const api = `http://${noria.addresses.proxyPool}`;
  const get = async (path: string) => (await fetch(api + path)).json();
  return { noria, sandbox, options, first, api, get };
}

/** The URL of a page of the sandbox's target. Only members resolve its name. */
export const pageOf = (targetUrl: string, path: string) =>
  `http://target.example:${new URL(targetUrl).port}${path}`;
