/**
 * Reads a list of proxies that somebody else keeps: a file, or the answer of a URL. In a text, each line is an entry, so
 * that noria can name the lines that are none; a list in JSON is read as the answer of a link.
 */
import { readFile } from 'node:fs/promises';
import { errnoOf, NoriaError } from '../core/faults.ts';
import { bodyText, unexpectedStatus } from './answer.ts';
import { SUCCESS } from './codes.ts';
import type { DecodedDraw, RefuseAddress } from './decode.ts';
import type { DrawnEntry } from './fields.ts';
import { compileEntryLayout, textEntries } from './link/address-text.ts';
import { decodeLink } from './link/decode-link.ts';
import { readLinkEntry } from './link/read-entry.ts';
import type { ListCall } from './request.ts';
import type { Exchange } from './transport.ts';

/** More lines than this would block noria for longer than a client may wait. */
const MAX_LINES = 5_000;
const MAX_NAMED_LINES = 5;
const COMMENT = /^\s*(?:#|\/\/)/;
const NOT_MODIFIED = 304;

export async function readListFile(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (cause) {
    const why = errnoOf(cause) ?? 'error';
    const message = `noria cannot read the list ${file} (${why}); check the path and its permissions`;
    throw new NoriaError('list-unreadable', message, { cause });
  }
}

/** The body of a successful answer; undefined if the list has not changed. */
export function listBody(reply: Exchange, { url, secrets }: ListCall): Uint8Array | undefined {
  if (reply.status === NOT_MODIFIED) return undefined;
  if (reply.status === 200) return reply.body;
  const host = url === undefined ? '' : new URL(url.reveal()).host;
  throw unexpectedStatus(reply, bodyText(reply.body), { host, secrets });
}

export function decodeList(
  body: Uint8Array,
  call: ListCall,
  options: { readonly refuses: RefuseAddress; readonly wallAt: number },
): DecodedDraw {
  const text = bodyText(body);
  const { answer, login, protocol, secrets } = call;
  if (answer.format === 'json' || (answer.format === 'auto' && /^[[{]/.test(text))) {
    const decoded = decodeLink(body, { ...options, answer, login, protocol, host: 'the list', secrets });
    return withoutDuplicates(decoded.entries, { ...decoded.dropped }, []);
  }
  const layout = answer.address === undefined ? undefined : compileEntryLayout(answer.address);
  const entries: DrawnEntry[] = [];
  const dropped: Record<string, number> = {};
  const unusable: number[] = [];
  for (const [index, line] of text.split(/\r?\n/, MAX_LINES).entries()) {
    if (line.trim() === '' || COMMENT.test(line)) continue;
    for (const raw of textEntries(line, MAX_LINES)) {
      const read = readLinkEntry(raw, { ...options, answer, login, protocol, layout });
      if (typeof read !== 'string') entries.push(read.entry);
      else {
        dropped[read] = (dropped[read] ?? 0) + 1;
        if (unusable.at(-1) !== index + 1) unusable.push(index + 1);
      }
    }
  }
  return withoutDuplicates(entries, dropped, unusable);
}

function withoutDuplicates(
  entries: readonly DrawnEntry[],
  dropped: Record<string, number>,
  unusable: readonly number[],
): DecodedDraw {
  const byKey = new Map(
    entries.map((entry) => [`${entry.protocol} ${entry.host} ${entry.port} ${entry.login?.username}`, entry]),
  );
  const duplicates = entries.length - byKey.size;
  if (duplicates > 0) dropped['duplicate'] = duplicates;
  return {
    code: SUCCESS,
    message: [
      ...(unusable.length === 0 ? [] : [`${lineNumbers(unusable)} cannot be used`]),
      ...(duplicates === 0 ? [] : [`duplicates: ${duplicates}`]),
    ].join('; '),
    entries: [...byKey.values()],
    dropped,
    quota: {},
  };
}

function lineNumbers(lines: readonly number[]): string {
  const named = lines.slice(0, MAX_NAMED_LINES).join(', ');
  const more = lines.length > MAX_NAMED_LINES ? ` and ${lines.length - MAX_NAMED_LINES} more` : '';
  return `${lines.length === 1 ? 'line' : 'lines'} ${named}${more}`;
}
