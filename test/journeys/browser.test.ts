/** A browser loads a page of a hundred resources and talks over a WebSocket, over an HTTP proxy and over SOCKS5. */
import { existsSync } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES } from '../support/client-stage.ts';
import { PAGE_RESOURCES } from '../support/exit-origin.ts';

const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/google-chrome'].find((path) => existsSync(path));

describe.skipIf(CHROMIUM === undefined)('browser', () => {
  let stage: ClientStage;
  let browser: Browser;
  beforeAll(async () => {
    stage = await openClientStage();
    browser = await chromium.launch({ executablePath: CHROMIUM ?? '', args: ['--no-sandbox'] });
  });
  afterAll(async () => {
    await browser?.close();
    await stage?.close();
  });

  for (const protocol of ['http', 'socks5']) {
    for (const scheme of SCHEMES) {
      test(`browser: over ${protocol}, an ${scheme} page with ${PAGE_RESOURCES} images and a WebSocket`, async () => {
        const proxy = { server: `${protocol}://${stage.open}` };
        const context = await browser.newContext({ proxy, ignoreHTTPSErrors: true });
        const page = await context.newPage();
        await page.goto(`${stage.target(scheme)}/page`);
        await page.waitForFunction("document.title !== 'loading'");
        expect(await page.title()).toBe(`${PAGE_RESOURCES} images, echo hello`);
        await context.close();
      });
    }
  }

  test('browser: a listener with users asks, and a session keeps its member', async () => {
    const proxy = { server: `http://${stage.asking}`, username: 'me-session-browser', password: 'x' };
    const context = await browser.newContext({ proxy, ignoreHTTPSErrors: true });
    const page = await context.newPage();
    const exits = new Set<string>();
    for (const scheme of SCHEMES) {
      await page.goto(`${stage.target(scheme)}/ip`);
      exits.add((await page.textContent('body')) ?? '');
    }
    expect(exits.size).toBe(1);
    await context.close();
  });

  test('browser: nothing reached a target but through a member', () => {
    expect(stage.strangers()).toEqual([]);
  });
});
