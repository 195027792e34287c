/** If the members of a source refuse its credentials, noria pauses the source with advice until a resume. */
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';

function connectStatus(proxy: string, target: string): Promise<number> {
  const [host, port] = proxy.split(':');
  return new Promise((resolve, reject) => {
    const asked = request({ host, port, method: 'CONNECT', path: target, agent: false });
    asked.on('connect', (answer, socket) => {
      socket.destroy();
      resolve(answer.statusCode ?? 0);
    });
    asked.on('response', (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    asked.on('error', reject);
    asked.end();
  });
}

test('refused source: is paused with advice, is not ready, and is tried again after a resume', async () => {
  const sandbox = await openTestSandbox({ instances: [{ product: 'long-residential', members: 4 }] });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'long-residential', 'size: 4, params: { count: 4 }')],
    more: 'dial: { waitForMember: 200ms, deadline: 3s }',
  });
  await untilReady(noria, 4);
  const target = new URL(sandbox.targetUrl).host;
  const setStatus = (status: number | undefined) =>
    Promise.all(
      sandbox
        .members()
        .map(({ id }) =>
          sandbox.setBehaviour(id, status === undefined ? { how: 'good' } : { how: 'status', status }),
        ),
    );
  await setStatus(407);
  for (let n = 0; n < 3; n += 1) expect(await connectStatus(noria.proxy, target)).toBeGreaterThanOrEqual(502);

  const [source] = noria.control.status().sources;
  expect(source).toMatchObject({ state: 'paused', reason: expect.stringMatching(/refused the credentials/) });
  expect(source?.advice).toMatch(/password/);
  expect(noria.control.status().ready).toBe(false);

  await setStatus(undefined);
  expect(noria.control.resumeSource('city')).toBe(true);
  expect(await connectStatus(noria.proxy, target)).toBe(200);
  expect(noria.control.status()).toMatchObject({ ready: true, sources: [{ state: 'ready', advice: null }] });
});
