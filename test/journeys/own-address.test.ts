/** No client reaches noria's own addresses through noria, whatever the target rules are, also after a reload. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { openTestSandbox, sourceLine, startNoria, testConfig, untilReady } from '../support/noria.ts';

/** The status line of the answer to CONNECT. */
async function connectTo(proxy: string, target: string): Promise<string> {
  const [host = '', port = ''] = proxy.split(':');
  const socket = connect(Number(port), host);
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  const [answer]: Buffer[] = await once(socket, 'data');
  socket.destroy();
  return answer?.toString('latin1').split('\r\n', 1)[0] ?? '';
}

const portOf = (address: string): string => address.slice(address.lastIndexOf(':') + 1);

test('own address: the admin API and the listeners are unreachable through noria, also after a reload', async () => {
  const sandbox = await openTestSandbox();
  const options = { sources: [sourceLine(sandbox, 'city', 'short-classic')] };
  const noria = await startNoria(options);
  await untilReady(noria, 1);
  const refused = 'HTTP/1.1 403 Forbidden';
  const firstAdmin = portOf(noria.admin);
  expect(await connectTo(noria.proxy, `127.0.0.1:${firstAdmin}`)).toBe(refused);
  expect(await connectTo(noria.proxy, `localhost:${firstAdmin}`)).toBe(refused);
  expect(await connectTo(noria.proxy, noria.proxy)).toBe(refused);

  const second = '{ address: "127.0.0.1:0", denyTargets: [], session: port }';
  await noria.reload(testConfig({ ...options, listeners: `listeners: [${second}, ${second}]` }));
  const [one = '', other = ''] = noria.control.status().listeners.map(({ address }) => address);
  expect(await connectTo(one, other), 'a listener added by the reload').toBe(refused);
  expect(await connectTo(other, one)).toBe(refused);
  expect(await connectTo(one, `127.0.0.1:${firstAdmin}`)).toBe(refused);
});
