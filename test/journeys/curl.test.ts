/** What curl can do with a proxy, it can do with noria: every way in, to a plain target and a TLS one, both directions. */
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
const WAYS: Readonly<Record<string, (proxy: string) => string[]>> = {
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
  for (const [way, argsOf] of Object.entries(WAYS)) {
    for (const scheme of SCHEMES) {
      const call = (...args: string[]) => curl(...TRUST, ...argsOf(stage.open), ...args);

      test(`curl: ${way}, ${scheme} target: an answer from a member's exit`, async () => {
        const { exitCode, out, err } = await call(`${stage.target(scheme)}/ip`);
        expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
        expect(stage.sandbox.members().map(({ exit }) => exit)).toContain(out.trim());
      });

      test(`curl: ${way}, ${scheme} target: an upload arrives whole, of known and of unknown length`, async () => {
        const file = join(await folder(), 'body');
        await writeFile(file, BYTES);
        const sum = `${BYTES.length} ${createHash('sha256').update(BYTES).digest('hex')}\n`;
        const url = `${stage.target(scheme)}/upload`;
        expect(await call('-T', file, url)).toMatchObject({ exitCode: 0, out: sum });
        const chunked = ['-H', 'Transfer-Encoding: chunked', '-H', 'Expect: 100-continue'];
        expect(await call(...chunked, '-T', file, url)).toMatchObject({ exitCode: 0, out: sum });
      });

      test(`curl: ${way}, ${scheme} target: a download is resumed where it stopped`, async () => {
        const file = join(await folder(), 'part');
        await writeFile(file, BYTES.subarray(0, 300_000));
        const { exitCode, err } = await call('-C', '-', '-o', file, `${stage.target(scheme)}/bytes`);
        expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
        expect(BYTES.equals(await readFile(file))).toBe(true);
      });
    }
  }

  test('curl: an HTTP/1.0 request for a plain target is answered', async () => {
    const { exitCode, out } = await curl('-0', '-x', `http://${stage.open}`, `${stage.target('http')}/ip`);
    expect(exitCode).toBe(0);
    expect(out).toMatch(/^127\./);
  });

  test('curl: socks4 and socks5 resolve here, so an address is what they can ask for; a private one is refused', async () => {
    for (const way of ['socks4', 'socks5']) {
      const { exitCode } = await curl('-x', `${way}://${stage.open}`, 'http://127.0.0.1:80/');
      expect(exitCode, way).toBe(97); // CURLE_PROXY: the proxy refused
      const unknown = await curl('-x', `${way}://${stage.open}`, `${stage.target('http')}/ip`);
      expect(unknown.exitCode, way).toBe(97); // the name is unknown on this side
    }
  });

  test('curl: proxy credentials, right ones and wrong ones, over HTTP and SOCKS5', async () => {
    const url = `${stage.target('https')}/ip`;
    for (const way of ['http', 'socks5h']) {
      const right = await curl(...TRUST, '-x', `${way}://me:x@${stage.asking}`, url);
      expect(right.exitCode, `${way}: ${right.err}`).toBe(0);
      const wrong = await curl(...TRUST, '-x', `${way}://me:y@${stage.asking}`, url);
      expect(wrong.exitCode, way).toBe(way === 'http' ? 56 : 97);
    }
    const asked = await curl(...TRUST, '--proxy-anyauth', '-U', 'me:x', '-x', `http://${stage.asking}`, url);
    expect(asked).toMatchObject({ exitCode: 0, out: expect.stringMatching(/^127\./) });
  });
});
