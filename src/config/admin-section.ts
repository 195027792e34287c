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
  const problemAt = (path: string) => document.problems.find((problem) => problem.path === path)?.message;
  if (valueAt(document.tree, ['admin']) === 'off')
    return { address: 'off', token: undefined, tokenProblem: undefined };
  const problem = problemAt('admin.address');
  if (problem !== undefined) throw invalid(file, `admin.address: ${problem}`);
  const address = addressOf(file, text('address'));
  const tokenProblem = problemAt('admin.token') ?? problemAt('admin.tokenFile');
  if (tokenProblem !== undefined) return { address, token: undefined, tokenProblem };
  const [plain, path] = [text('token'), text('tokenFile')];
  try {
    const token = plain ?? (path && readText(resolve(dirname(file), path)).replace(/\r?\n$/, ''));
    return { address, token: token === undefined ? undefined : new Secret(token), tokenProblem: undefined };
  } catch (error) {
    return { address, token: undefined, tokenProblem: describeError(error) };
  }
}

function addressOf(file: string, text: string | undefined): AdminSection['address'] {
  if (text === undefined || text === 'off') return text;
  const reading = readListenAddress(text);
  if ('value' in reading) return reading.value;
  throw invalid(file, `admin.address ${reading.wrong}; expected off or host:port`);
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
