/**
 * `noria link URL`: calls an extraction link once. Prints what noria recognises in the answer, and a source for the
 * configuration.
 *
 * Two calls to one link are at least a second apart, even from two processes. If a source of the default configuration
 * has this link, the command keeps the interval of that source and records its call in the configured state folder.
 * Otherwise it records its call in a folder of the current user.
 */
import { lstatSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { type Command, Option } from 'commander';
import type { LinkSource } from '../config/config.ts';
import { findDefaultFile } from '../config/files.ts';
import { loadConfig } from '../config/load.ts';
import { linkUrl } from '../config/scalars.ts';
import { NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import { serviceTunnel } from '../daemon/part-options.ts';
import type { DecodedLink } from '../service/link/decode-link.ts';
import { linkIdentity, linkSecrets } from '../service/link/link-url.ts';
import type { LinkCall } from '../service/request.ts';
import { type CommandContext, integerOption } from './command.ts';
import { linkFacts, linkReport } from './link-report.ts';
import { type CallSettings, callWithinPace } from './service-call.ts';
import { EXIT, type Terminal } from './terminal.ts';

interface LinkFlags {
  readonly count: number;
  readonly json?: boolean;
}

const MAX_COUNT = 1_000;
/** The minimum time between two calls of this command to one link. */
const MIN_SPACING_MS = 1_000;
const TIMEOUT_MS = 10_000;

export function addLinkCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('link')
    .description(
      'call an extraction link once, print what noria recognises in the answer, and print the source for the configuration',
    )
    .argument(
      '<url>',
      'the link; with -, the command reads the link from standard input, so that it is not in the history of the shell',
    )
    .addOption(
      new Option('-n, --count <count>', 'what replaces {count} in the link')
        .argParser(integerOption(1, MAX_COUNT))
        .default(1),
    )
    .option('--json', 'print the result as JSON')
    .addHelpText(
      'after',
      "\nExamples:\n  noria link 'https://share.example.com/get?key=…&num={count}'\n  noria link - < link.txt\n\ndocs/links.md explains what noria recognises, and how to set the rest.",
    )
    .action(action((url: string, flags: LinkFlags) => showLink(url, flags, terminal)));
}

async function showLink(given: string, { count, json }: LinkFlags, terminal: Terminal): Promise<number> {
  const url = readUrl(given === '-' ? (await terminal.readHidden('link: ')).trim() : given);
  const call = callOfUrl(url, count);
  const known = configuredLink(call.instance, terminal);
  const settings = known?.settings ?? { ...DEFAULT_SETTINGS, stateDir: ownFolder(terminal) };
  const intervalMs = Math.max(MIN_SPACING_MS, known?.source?.intervalMs ?? 0);
  const answer = await callWithinPace(
    settings,
    {
      ...call,
      intervalMs,
      send: (connection, gate): Promise<DecodedLink> => connection.extractLink(call, { gate }),
    },
    terminal,
  );
  const facts = linkFacts(url, answer);
  if (json === true) terminal.print(JSON.stringify(facts, undefined, 2));
  else for (const line of linkReport(facts)) terminal.print(line);
  return EXIT.fine;
}

/** No message quotes the URL, because it contains keys. */
function readUrl(given: string): Secret {
  const { scalarType } = linkUrl();
  const reading = scalarType.read(given);
  if ('value' in reading) return reading.value;
  throw new NoriaError('bad-usage', `the link ${reading.wrong}; expected ${scalarType.expected}`);
}

/**
 * The settings for a link that is not in the default configuration. They accept proxies with private addresses, because
 * the command only prints the proxies.
 */
const DEFAULT_SETTINGS = { timeoutMs: TIMEOUT_MS, refuses: () => undefined, openTunnel: undefined };

function callOfUrl(url: Secret, count: number): LinkCall {
  return {
    product: 'link',
    method: 'GET',
    baseUrl: new URL(url.reveal()).origin,
    instance: linkIdentity(url, undefined),
    url,
    headers: {},
    secrets: linkSecrets(url, { headers: {}, body: undefined }),
    params: {},
    count,
    rules: { format: 'auto' },
    login: 'use',
    protocol: undefined,
  };
}

/**
 * Reads the default configuration. Returns its source with this link, if there is one, and the settings for the call.
 */
function configuredLink(
  identity: string,
  terminal: Terminal,
): { readonly source: LinkSource | undefined; readonly settings: CallSettings } | undefined {
  const file = findDefaultFile();
  if (file === undefined) return undefined;
  try {
    const config = loadConfig(file, { env: terminal.env });
    const found = config.sources.find(({ instance }) => instance === identity);
    const source = found?.product === 'link' ? found : undefined;
    const stateDir = (source && config.state?.dir) ?? ownFolder(terminal);
    return { source, settings: { ...DEFAULT_SETTINGS, stateDir, openTunnel: serviceTunnel(config) } };
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    return undefined; // ignored: the command does not need a valid configuration
  }
}

/**
 * The folder of the current user for calls to links that are in no configuration. Without a home folder it is in the
 * folder for temporary files, where another user could have created it.
 *
 * @throws NoriaError state-unwritable if the folder belongs to another user, or is a symbolic link.
 */
function ownFolder({ env }: Terminal): string {
  const uid = process.getuid?.();
  const roots = [env['XDG_STATE_HOME'], env['HOME'] && join(env['HOME'], '.local', 'state')];
  const home = roots.find((root) => root !== undefined && isAbsolute(root));
  const folder =
    home === undefined ? join(tmpdir(), `noria-link-${uid ?? 'user'}`) : join(home, 'noria', 'link');
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (found === undefined || (found.isDirectory() && (uid === undefined || found.uid === uid))) return folder;
  const what = found.isDirectory() ? 'belongs to another user' : 'is not a folder';
  throw new NoriaError('state-unwritable', `the folder ${folder} ${what}; remove it`);
}
