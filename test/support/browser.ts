/** The machine's Chromium, driven by playwright-core. */
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from 'playwright-core';
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

/**
 * Chromium opens connections in advance. noria closes a connection without a request after 5 s with status 408, and Chromium logs
 * this status if it uses the connection only then, as on a busy machine.
 */
const UNUSED_CONNECTION = /the server responded with a status of 408/;

/** The time limit of each step in ms: a safety net for a busy machine. */
const LIMIT_MS = 100_000;

/** Starts Chromium. The caller closes the browser. */
export function launchBrowser(): Promise<Browser> {
  if (CHROMIUM === undefined) throw new TypeError('this machine has no Chromium');
  return chromium.launch({ executablePath: CHROMIUM, args: ARGS, timeout: LIMIT_MS });
}

export async function openContext(browser: Browser, options: BrowserContextOptions): Promise<BrowserContext> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(LIMIT_MS);
  return context;
}

export interface Visit {
  readonly page: Page;
  /** Errors and warnings of the page, from its console and from exceptions. */
  readonly errors: readonly string[];
  /** URLs that the page requested. */
  readonly requested: readonly string[];
}

/** The context of each browser for visits without a locale. Chromium needs a second of CPU time for a new context. */
const shared = new WeakMap<Browser, Promise<BrowserContext>>();

function sharedContext(browser: Browser): Promise<BrowserContext> {
  const context = shared.get(browser) ?? openContext(browser, {});
  shared.set(browser, context);
  return context;
}

/**
 * Opens a URL in a new page, which closes with the test. Pages with a locale have a context of their own; the others share one, so
 * each test needs an origin of its own. Fails the test if the page had errors, unless the test allows errors.
 */
export async function visit(
  browser: Browser,
  url: string,
  { mayFail = false, locale }: { readonly mayFail?: boolean; readonly locale?: string } = {},
): Promise<Visit> {
  const own = locale === undefined ? undefined : await openContext(browser, { locale });
  const page = await (own ?? (await sharedContext(browser))).newPage();
  const errors: string[] = [];
  const requested: string[] = [];
  onTestFinished(async () => {
    await (own ?? page).close();
    if (!mayFail) expect(errors, 'errors of the page').toEqual([]);
  });
  page.on('console', (message) => {
    if (message.type() !== 'error' && message.type() !== 'warning') return;
    if (!UNUSED_CONNECTION.test(message.text())) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => requested.push(request.url()));
  await page.goto(url);
  return { page, errors, requested };
}
