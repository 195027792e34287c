/** A browser loads a page with a hundred resources and uses a WebSocket, through an HTTP proxy and through SOCKS5. */
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { launchBrowser, openContext } from '../support/browser.ts';
import { type ClientStage, openClientStage, SCHEMES } from '../support/client-stage.ts';
import { PAGE_RESOURCES } from '../support/exit-origin.ts';
import { CHROMIUM } from '../support/tools.ts';

describe.skipIf(CHROMIUM === undefined)('browser', () => {
  let stage: ClientStage;
  let browser: Browser;
  beforeAll(async () => {
    stage = await openClientStage();
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await stage?.close();
  });
  afterEach(() => expect(stage.strangers(), 'connections past noria').toEqual([]));

  for (const protocol of ['http', 'socks5']) {
    for (const scheme of SCHEMES) {
      test(`browser: loads an ${scheme} page with ${PAGE_RESOURCES} images and a WebSocket over ${protocol}`, async () => {
        const proxy = { server: `${protocol}://${stage.open}` };
        const context = await openContext(browser, { proxy, ignoreHTTPSErrors: true });
        const page = await context.newPage();
        await page.goto(`${stage.target(scheme)}/page`);
        await page.waitForFunction("document.title !== 'loading'");
        expect(await page.title()).toBe(`${PAGE_RESOURCES} images, echo hello`);
        await context.close();
      });
    }
  }

  test('browser: answers the credentials prompt of a listener with users, and its session keeps one member', async () => {
    const proxy = { server: `http://${stage.withUsers}`, username: 'me-session-browser', password: 'x' };
    const context = await openContext(browser, { proxy, ignoreHTTPSErrors: true });
    const page = await context.newPage();
    const exits = new Set<string>();
    for (const scheme of SCHEMES) {
      await page.goto(`${stage.target(scheme)}/ip`);
      exits.add((await page.textContent('body')) ?? '');
    }
    expect(exits.size).toBe(1);
    await context.close();
  });
});
