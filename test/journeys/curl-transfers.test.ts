/**
 * curl uploads and downloads through noria over every proxy protocol. curl.test.ts also runs with two workers. These tests do
 * not, because the same code relays the bytes in a worker and in a single process.
 */
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES } from '../support/client-stage.ts';
import { curl } from '../support/curl.ts';
import { PROTOCOLS, TRUST } from '../support/curl-protocols.ts';
import { BYTES } from '../support/exit-origin.ts';
import { hasCommand } from '../support/tools.ts';

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());
afterEach(() => expect(stage.strangers(), 'connections past noria').toEqual([]));

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'noria-curl-'));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

describe.skipIf(!hasCommand('curl'))('curl', () => {
  for (const [protocol, argsOf] of Object.entries(PROTOCOLS)) {
    for (const scheme of SCHEMES) {
      const call = (...args: string[]) => curl(...TRUST, ...argsOf(stage.open), ...args);

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
});
