import { execFileSync } from 'node:child_process';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { childEnvironment } from '../../support/environment.ts';

/** Prints the URL of each module that the module in the first argument loads. */
const PRINT_LOADED = `
  import { registerHooks } from 'node:module';
  const urls = [];
  registerHooks({ load: (url, context, next) => (urls.push(url), next(url, context)) });
  await import(process.argv[1]);
  console.log(JSON.stringify(urls));
  process.exit();`;

test('workers: a worker loads no library and not node:http', () => {
  const worker = resolve('src/plane/workers/worker.ts');
  const args = ['--input-type=module', '--eval', PRINT_LOADED, worker];
  const printed = execFileSync(process.execPath, args, { encoding: 'utf8', env: childEnvironment() });
  const urls: string[] = JSON.parse(printed);
  expect(urls).toContain(new URL('../../../src/dialer/dialer.ts', import.meta.url).href);
  expect(urls.filter((url) => url.includes('/node_modules/') || /^node:https?2?$/.test(url))).toEqual([]);
});
