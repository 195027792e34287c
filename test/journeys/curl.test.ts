/**
 * curl works with noria over every proxy protocol, to HTTP and HTTPS targets. curl-transfers.test.ts tests long downloads
 * and uploads.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES } from '../support/client-stage.ts';
import { curl } from '../support/curl.ts';
import { PROTOCOLS, TRUST } from '../support/curl-protocols.ts';
import { hasCommand } from '../support/tools.ts';

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());
afterEach(() => expect(stage.strangers(), 'connections past noria').toEqual([]));

describe.skipIf(!hasCommand('curl'))('curl', () => {
  for (const [protocol, argsOf] of Object.entries(PROTOCOLS)) {
    for (const scheme of SCHEMES) {
      const call = (...args: string[]) => curl(...TRUST, ...argsOf(stage.open), ...args);

      test(`curl: ${protocol}, ${scheme} target: the answer comes from a member's exit`, async () => {
        const { exitCode, out, err } = await call(`${stage.target(scheme)}/ip`);
        expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
        expect(stage.sandbox.members().map(({ exit }) => exit)).toContain(out.trim());
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
