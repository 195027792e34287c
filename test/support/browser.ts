/** Debian's Chromium, driven by playwright-core; for the tests of the page. */
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import { CHROMIUM } from './tools.ts';

const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** A browser; the caller closes it. */
export function launchBrowser(): Promise<Browser> {
  if (CHROMIUM === undefined) throw new TypeError('there is no Chromium to launch');
  return chromium.launch({ executablePath: CHROMIUM, args: ARGS });
}

export interface Visit {
  readonly page: Page;
  /** What the page complained of, in its console or by throwing. */
  readonly complaints: readonly string[];
  /** Addresses it asked for. */
  readonly asked: readonly string[];
}

/** Opens an address in a context of its own, which closes with the test. The page must not have complained by then. */
export async function visit(
  browser: Browser,
  url: string,
  options: BrowserContextOptions & { readonly mayComplain?: boolean } = {},
): Promise<Visit> {
  const { mayComplain = false, ...rest } = options;
  const context = await browser.newContext(rest);
  const complaints: string[] = [];
  const asked: string[] = [];
  onTestFinished(async () => {
    await context.close();
    if (!mayComplain) expect(complaints, 'the page complained').toEqual([]);
  });
  const page = await context.newPage();
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => asked.push(request.url()));
  await page.goto(url);
  return { page, complaints, asked };
}
