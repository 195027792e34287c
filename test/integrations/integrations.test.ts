/** Each integration runs in the real program, through a whole noria, against a site that bans the first exits. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type ClientStage, openClientStage } from '../support/client-stage.ts';
import { PYTHON } from '../support/python.ts';
import { CHROMIUM } from '../support/tools.ts';
import { openBanningSite } from './banning-site.ts';

const FOLDER = resolve('integrations');
/** `npm install --prefix integrations` brings them. */
const hasPackage = (name: string) => existsSync(join(FOLDER, 'node_modules', name));

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());

const bansOf = (name: string) => stage.daemon.control.sites().find((site) => site.name === name)?.bans ?? 0;

function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  return new Promise((done) => {
    const environment = { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env };
    execFile(command, args, { env: environment, timeout: 100_000 }, (error, out, err) =>
      done(`${out}${err}${error?.message ?? ''}`),
    );
  });
}

/** Writes a program next to the packages of the integrations. */
async function program(name: string, text: string): Promise<string> {
  const folder = await mkdtemp(join(FOLDER, '.test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, name), text);
  return join(folder, name);
}

test.skipIf(!PYTHON.modules.includes('scrapy'))(
  'integrations: Scrapy reports a ban, repeats the request through another exit, and knows the exit',
  async () => {
    const site = await openBanningSite(2);
    onTestFinished(() => site.close());
    const spider = await program(
      'spider.py',
      `import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = ["http://scrapy.example:${site.port}/page"]
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {"noria_scrapy.NoriaMiddleware": 740},
        "NORIA_PROXY": "http://me:x@${stage.open}",
    }

    def is_banned(self, request, response):
        return "captcha" in response.text

    def parse(self, response):
        print("RESULT", response.meta["noria_exit"], response.css("h1::text").get())
`,
    );
    const printed = await run(PYTHON.command, ['-m', 'scrapy', 'runspider', '--nolog', spider], {
      PYTHONPATH: join(FOLDER, 'scrapy'),
    });
    const [, exit, page] = /RESULT (\S+) page for (\S+)/.exec(printed) ?? [];
    expect(page, printed).toBe(site.served[0]);
    expect(exit, printed).toBeDefined();
    expect(site.banned.size).toBe(2);
    expect(bansOf('scrapy.example')).toBe(2);
  },
);

test.skipIf(!hasPackage('crawlee'))(
  'integrations: a session that Crawlee retires is a ban, and the next one has another exit',
  async () => {
    const site = await openBanningSite(1);
    onTestFinished(() => site.close());
    const crawler = await program(
      'crawl.mjs',
      `import { CheerioCrawler, Configuration } from 'crawlee';
import { noria } from '../crawlee/noria-crawlee.js';

const crawler = new CheerioCrawler({
  ...noria({ proxy: 'http://me:x@${stage.open}' }),
  maxConcurrency: 1,
  requestHandler({ $, session }) {
    const title = $('h1').text();
    if (title === 'captcha') {
      session.retire();
      throw new Error('captcha');
    }
    console.log('RESULT', title);
  },
}, new Configuration({ persistStorage: false }));
await crawler.run(['http://crawlee.example:${site.port}/page']);
`,
    );
    const printed = await run(process.execPath, [crawler], {});
    expect(printed).toContain(`RESULT page for ${site.served[0]}`);
    expect(site.banned.size).toBe(1);
    expect(bansOf('crawlee.example'), printed).toBe(1);
  },
);

test.skipIf(!hasPackage('@playwright/test') || CHROMIUM === undefined)(
  'integrations: a Playwright test has a session of its own, and reports a ban',
  async () => {
    const site = await openBanningSite(1);
    onTestFinished(() => site.close());
    const spec = await program(
      'shop.spec.js',
      `import { expect, test } from '../playwright/noria-playwright.js';

test.use({
  noriaProxy: 'http://me:x@${stage.withUsers}',
  launchOptions: { executablePath: '${CHROMIUM}', args: ['--no-sandbox'] },
});

test('leaves a banned exit', async ({ page, noria }) => {
  await page.goto('http://playwright.example:${site.port}/page');
  expect(await page.textContent('h1')).toBe('captcha');
  const before = await noria.state();
  await noria.banned();
  await page.goto('http://playwright.example:${site.port}/page');
  expect(await page.textContent('h1')).toContain('page for');
  const after = await noria.state();
  expect(after.session).toBe(before.session);
  expect(after.exit).not.toBe(before.exit);
});
`,
    );
    const cli = join(FOLDER, 'node_modules/@playwright/test/cli.js');
    const printed = await run(process.execPath, [cli, 'test', '-c', join(spec, '..'), '--reporter=line'], {});
    expect(printed).toContain('1 passed');
    expect(bansOf('playwright.example'), printed).toBe(1);
  },
);
