/** curl works with noria over every proxy protocol, to HTTP and HTTPS targets, for downloads and uploads. */
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES } from '../support/client-stage.ts';
import { curl } from '../support/curl.ts';
import { BYTES, TARGET_CERTIFICATE } from '../support/exit-origin.ts';
import { hasCommand } from '../support/tools.ts';

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());
afterEach(() => expect(stage.strangers(), 'connections past noria').toEqual([]));

const TRUST = ['--cacert', TARGET_CERTIFICATE];
const PROTOCOLS: Readonly<Record<string, (proxy: string) => string[]>> = {
  'an HTTP proxy': (proxy) => ['-x', `http://${proxy}`],
  'an HTTP proxy, always CONNECT': (proxy) => ['-p', '-x', `http://${proxy}`],
  'an HTTP/1.0 proxy': (proxy) => ['--proxy1.0', proxy],
  socks4a: (proxy) => ['-x', `socks4a://${proxy}`],
  socks5h: (proxy) => ['-x', `socks5h://${proxy}`],
};

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'noria-curl-'));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

describe.skipIf(!hasCommand('curl'))('curl', () => {
  for (const [protocol, argsOf] of Object.entries(PROTOCOLS)) {
    for (const scheme of SCHEMES) {
      const call = (...args: string[]) => curl(...TRUST, ...argsOf(stage.open), ...args);

      test(`curl: ${protocol}, ${scheme} target: the answer comes from a member's exit`, async () => {
        const { exitCode, out, err } = await call(`${stage.target(scheme)}/ip`);
        expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
        expect(stage.sandbox.members().map(({ exit }) => exit)).toContain(out.trim());
      });

      test(`curl: ${protocol}, ${scheme} target: uploads of known and unknown length arrive complete`, async () => {
        const file = join(await folder(), 'body');
        await writeFile(file, BYTES);
        const sum = `${BYTES.length} ${createHash('sha256').update(BYTES).digest('hex')}\n`;
        const url = `${stage.target(scheme)}/upload`;
        expect(await call('-T', file, url)).toMatchObject({ exitCode: 0, out: sum });
        const chunked = ['-H', 'Transfer-Encoding: chunked', '-H', 'Expect: 100-continue'];
        expect(await call(...chunked, '-T', file, url)).toMatchObject({ exitCode: 0, out: sum });
      });

      test(`curl: ${protocol}, ${scheme} target: a partial download is resumed`, async () => {
        const file = join(await folder(), 'part');
        await writeFile(file, BYTES.subarray(0, 300_000));
        const { exitCode, err } = await call('-C', '-', '-o', file, `${stage.target(scheme)}/bytes`);
        expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
        expect(BYTES.equals(await readFile(file))).toBe(true);
      });
    }
  }

  test('curl: an HTTP/1.0 request is answered', async () => {
    const { exitCode, out } = await curl('-0', '-x', `http://${stage.open}`, `${stage.target('http')}/ip`);
    expect(exitCode).toBe(0);
    expect(out).toMatch(/^127\./);
  });

  test('curl: a private address over socks4 and socks5, which resolve names locally, is refused', async () => {
    for (const protocol of ['socks4', 'socks5']) {
      const { exitCode } = await curl('-x', `${protocol}://${stage.open}`, 'http://127.0.0.1:80/');
      expect(exitCode, protocol).toBe(97); // CURLE_PROXY: noria refused the target
      const unknown = await curl('-x', `${protocol}://${stage.open}`, `${stage.target('http')}/ip`);
      expect(unknown.exitCode, protocol).toBe(97); // CURLE_PROXY: curl could not resolve the name
    }
  });

  test('curl: right proxy credentials are accepted and wrong ones refused, over HTTP and SOCKS5', async () => {
    const url = `${stage.target('https')}/ip`;
    for (const protocol of ['http', 'socks5h']) {
      const right = await curl(...TRUST, '-x', `${protocol}://me:x@${stage.withUsers}`, url);
      expect(right.exitCode, `${protocol}: ${right.err}`).toBe(0);
      const wrong = await curl(...TRUST, '-x', `${protocol}://me:y@${stage.withUsers}`, url);
      expect(wrong.exitCode, protocol).toBe(protocol === 'http' ? 56 : 97);
    }
    const anyAuth = await curl(
      ...TRUST,
      '--proxy-anyauth',
      '-U',
      'me:x',
      '-x',
      `http://${stage.withUsers}`,
      url,
    );
    expect(anyAuth).toMatchObject({ exitCode: 0, out: expect.stringMatching(/^127\./) });
  });
});
