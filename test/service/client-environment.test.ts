import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { stubService, stubSocket } from './stub-service.ts';

const SCRIPT = fileURLToPath(new URL('call-once.ts', import.meta.url));

/**
 * A proxy variable may point to noria itself, and any proxy would see the key. Node reads these variables when the process
 * starts, so the call runs in a new process. Its proxy is a socket that must get no connection.
 */
test('client environment: proxy variables are ignored, in any letter case, even if Node itself uses them', async () => {
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

/** A self-signed certificate for localhost and 127.0.0.1 that is valid for a century. Its key protects nothing. */
const CERTIFICATE = fileURLToPath(new URL('../fixtures/service/tls/localhost.cert.pem', import.meta.url));
const tls = {
  cert: readFileSync(CERTIFICATE),
  key: readFileSync(new URL('../fixtures/service/tls/localhost.key.pem', import.meta.url)),
};

/** Returns the output of a new process that makes a call over HTTPS. */
async function callOverTls(address: string, more: NodeJS.ProcessEnv): Promise<string> {
  const env = { ...process.env, NODE_NO_WARNINGS: '1', ...more };
  const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, `https://${address}`], { env });
  return stdout;
}

test('client environment: an HTTPS service with a trusted certificate is called, by name or by address', async () => {
  const serverNames: unknown[] = [];
  const service = await stubService((response) => {
    if (response.socket instanceof TLSSocket) serverNames.push(response.socket.servername);
    response.end('{"code":"12009"}');
  }, tls);
  const trust = { NODE_EXTRA_CA_CERTS: CERTIFICATE };
  expect(await callOverTls(`localhost:${service.port}`, trust)).toBe('12009');
  expect(await callOverTls(`127.0.0.1:${service.port}`, trust)).toBe('12009');
  expect(serverNames).toEqual(['localhost', false]); // a client must not send an IP address as the server name (RFC 6066 §3)
});

test('client environment: an HTTPS service with an untrusted certificate gets no request', async () => {
  const service = await stubService((response) => response.end('{"code":"12009"}'), tls);
  const said = await callOverTls(`localhost:${service.port}`, {});
  expect(said).toMatch(
    /^the TLS handshake with localhost:\d+ failed after \d+ ms \(DEPTH_ZERO_SELF_SIGNED_CERT\)/,
  );
  expect(service.received).toEqual([]);
});
