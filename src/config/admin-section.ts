/**
 * Reads only the section `admin` of a configuration, for commands that control a running noria.
 *
 * These commands need no other secret or variable, so the rest of the file may be invalid. This file does not import
 * the schema, because loading the schema would double the CPU time of a health check.
 */
import { dirname, resolve } from 'node:path';
import { describeError, NoriaError } from '../core/faults.ts';
import { type ListenAddress, readListenAddress } from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import { type Environment, ParsedDocument, valueAt } from './document.ts';
import { decodeText, systemFiles, whyUnreadable } from './files.ts';

export interface AdminSection {
  readonly address: ListenAddress | 'off' | undefined;
  readonly token: Secret | undefined;
  readonly tokenProblem: string | undefined;
}

export function readAdminSection(file: string, env: Environment): AdminSection {
  const document = new ParsedDocument(readText(file), env);
  const [first] = document.problems;
  if (document.tree === undefined) {
    const { line, col } = document.lines.linePos(first?.offset ?? 0);
    throw invalid(`${file}:${line}:${col}`, `invalid YAML: ${first?.message}`);
  }
  const text = (key: string) => {
    const value = valueAt(document.tree, ['admin', key]);
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  if (valueAt(document.tree, ['admin']) === 'off') return OFF;
  return { address: addressOf(document, file, text('address')), ...tokenOf(document, file, text) };
}

const OFF: AdminSection = { address: 'off', token: undefined, tokenProblem: undefined };

function addressOf(
  document: ParsedDocument,
  file: string,
  text: string | undefined,
): AdminSection['address'] {
  const problem = problemAt(document, 'admin.address');
  if (problem !== undefined) throw invalid(file, `admin.address: ${problem}`);
  if (text === undefined || text === 'off') return text;
  const reading = readListenAddress(text);
  if ('value' in reading) return reading.value;
  throw invalid(file, `admin.address ${reading.wrong}; expected off or host:port`);
}

function tokenOf(
  document: ParsedDocument,
  file: string,
  text: (key: string) => string | undefined,
): Pick<AdminSection, 'token' | 'tokenProblem'> {
  const problem = problemAt(document, 'admin.token') ?? problemAt(document, 'admin.tokenFile');
  if (problem !== undefined) return { token: undefined, tokenProblem: problem };
  const [plain, path] = [text('token'), text('tokenFile')];
  if (plain !== undefined) return { token: new Secret(plain), tokenProblem: undefined };
  if (path === undefined) return { token: undefined, tokenProblem: undefined };
  try {
    const token = readText(resolve(dirname(file), path)).replace(/\r?\n$/, '');
    return { token: new Secret(token), tokenProblem: undefined };
  } catch (error) {
    return { token: undefined, tokenProblem: describeError(error) };
  }
}

function problemAt({ problems }: ParsedDocument, path: string): string | undefined {
  return problems.find((problem) => problem.path === path)?.message;
}

function readText(file: string): string {
  let bytes: Buffer;
  try {
    bytes = systemFiles.read(file);
  } catch (error) {
    throw invalid(file, whyUnreadable(error));
  }
  const reading = decodeText(bytes);
  if ('value' in reading) return reading.value;
  throw invalid(file, reading.wrong);
}

function invalid(place: string, message: string): NoriaError {
  return new NoriaError('bad-config', `${place}: ${message}`);
}
