/**
 * Authorises this machine's address at a vendor whose answer says that the address is not authorised: calls the vendor's
 * binding URL (`whitelist.url`), at most once in `every` for the same address. So a wrong URL or a vendor that ignores
 * it never causes a loop.
 */
import { isIP } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { Secret } from '../core/secret.ts';
import { roughDuration } from '../core/words.ts';
import type { DrawSourceOptions, UrlAccess } from './options.ts';
import type { Place } from './pace.ts';
import type { DrawOutcome } from './reaction.ts';

const ADDRESS = /(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])/g;
const ADDRESS_TAG = '{ip}';

export class Whitelist {
  readonly options: NonNullable<DrawSourceOptions['whitelist']>;
  readonly #clock: Clock;
  readonly #urls: UrlAccess;
  isDue = false;
  #named: string | undefined;
  /** Whether the last call of `bind` found the address that it had bound already. */
  #isSame = false;
  #last: { readonly address: string; readonly at: number; readonly problem?: string } | undefined;

  constructor(clock: Clock, urls: UrlAccess, options: Whitelist['options']) {
    this.#clock = clock;
    this.#urls = urls;
    this.options = options;
  }

  /** Decides whether to call the binding URL. @returns the outcome with the advice that follows from its last call. */
  refused(outcome: DrawOutcome): DrawOutcome {
    const { everyMs, myIp } = this.options;
    const last = this.#last;
    this.#named = outcome.message?.match(ADDRESS)?.find((text) => isIP(text) !== 0);
    const known = this.#known();
    // only a call to `myIp` may tell the address; after it has told the same one, a second call would be a loop
    const isAsked = known === undefined && myIp !== undefined && !this.#isSame;
    this.#isSame = false;
    const isOther =
      last?.problem === undefined && (isAsked || (known !== undefined && known !== last?.address));
    this.isDue = last === undefined || this.#clock.monotonic() - last.at >= everyMs || isOther;
    return { ...outcome, advice: this.#advice(outcome.advice) };
  }

  /** Calls the binding URL. The call counts as a call of the source, so it keeps the pace of `place`. */
  async bind(place: Place, signal: AbortSignal): Promise<void> {
    this.isDue = false;
    const last = this.#last;
    const at = this.#clock.monotonic();
    let address = '';
    try {
      address = await this.#address(signal);
      this.#isSame = last?.address === address && at - last.at < this.options.everyMs;
      if (signal.aborted || this.#isSame) return;
      const problem = await this.#call(address, place, signal);
      this.#last = { address, at, ...(problem !== undefined && { problem }) };
    } catch (error) {
      if (signal.aborted) return; // ignored: the turn has ended
      if (!(error instanceof NoriaError)) throw error;
      this.#last = { address, at, problem: `failed: ${error.message}` };
    }
  }

  async #call(address: string, place: Place, signal: AbortSignal): Promise<string | undefined> {
    const url = new Secret(this.options.url.reveal().replaceAll(ADDRESS_TAG, encodeURIComponent(address)));
    const connection = await this.#urls.open(this.options.url, signal);
    try {
      const sent = await place.send((permit) => connection.get(url, permit));
      if (sent === undefined) return 'was late';
      const { status, text } = sent.result;
      return status < 300 ? undefined : `answered with status ${status}${text && `: ${text}`}`;
    } finally {
      connection.close();
    }
  }

  /** The address that the service named, else `myIp`; empty if the URL takes none, undefined if `myIp` has to be asked. */
  #known(): string | undefined {
    const { url, myIp } = this.options;
    if (!url.reveal().includes(ADDRESS_TAG)) return '';
    return this.#named ?? (myIp !== undefined && isIP(myIp) !== 0 ? myIp : undefined);
  }

  async #address(signal: AbortSignal): Promise<string> {
    const { myIp } = this.options;
    const known = this.#known();
    if (known !== undefined) return known;
    if (myIp === undefined)
      throw new NoriaError('bad-config', 'the service names no address; set whitelist.myIp of the source');
    const asked = new Secret(myIp);
    const connection = await this.#urls.open(asked, signal);
    try {
      const { status, text } = await connection.get(asked);
      if (status === 200 && isIP(text) !== 0) return text;
      throw new NoriaError('bad-config', `whitelist.myIp answered with status ${status} and no address`);
    } finally {
      connection.close();
    }
  }

  #advice(advice: string): string {
    const last = this.#last;
    if (last === undefined || this.isDue)
      return 'noria now calls whitelist.url of the source to authorise this machine.';
    const { address, at, problem } = last;
    const what = address === '' ? 'this machine' : address;
    const ago = roughDuration(this.#clock.monotonic() - at);
    if (problem === undefined)
      return `noria called whitelist.url for ${what} ${ago} ago, and the service still refuses it. ${advice}`;
    return `The call of whitelist.url for ${what} ${ago} ago ${problem}. Correct whitelist of the source, or: ${advice}`;
  }
}
