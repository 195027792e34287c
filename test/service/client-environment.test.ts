import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { stubService, stubSocket } from './stub-service.ts';

const SCRIPT = fileURLToPath(new URL('call-once.ts', import.meta.url));

/**
 * A desktop's proxy setting may name noria itself, and whoever it names would see the key. Read by Node as the process
 * starts, so the call is made in a process of its own; the proxy is a socket that must stay alone.
 */
test('client environment: no proxy variable is obeyed, in either case, also where Node itself would', async () => {
  let seenByProxy = 0;
  const proxy = await stubSocket((socket) => {
    seenByProxy += 1;
    socket.destroy();
  });
  const service = await stubService((response) => response.end('{"code":"12009"}'));
  const names = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'https_proxy', 'ALL_PROXY', 'all_proxy'];
  const env = {
    ...process.env,
    ...Object.fromEntries(names.map((name) => [name, proxy.baseUrl])),
    NO_PROXY: '',
    no_proxy: '',
    NODE_USE_ENV_PROXY: '1',
    NODE_NO_WARNINGS: '1',
  };
  const control = `fetch('${service.baseUrl}').catch(() => {})`;
  await promisify(execFile)(process.execPath, ['--eval', control], { env });
  expect(seenByProxy, 'Node itself does not obey the variables as they are set').toBeGreaterThan(0);
  expect(service.received).toEqual([]);

  seenByProxy = 0;
  const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, service.baseUrl], { env });
  expect(stdout).toBe('12009');
  expect(service.received).toHaveLength(1);
  expect(seenByProxy).toBe(0);
});
