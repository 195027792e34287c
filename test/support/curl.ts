import { execFile } from 'node:child_process';

export interface CurlAnswer {
  readonly exitCode: number;
  readonly out: string;
  readonly err: string;
}

/** Runs curl without a progress bar, curlrc or proxy variables, for at most 60 s. */
export function curl(...args: string[]): Promise<CurlAnswer> {
  return new Promise((resolve) => {
    execFile(
      'curl',
      ['-q', '-sS', '-m', '60', ...args],
      { env: { PATH: process.env['PATH'] ?? '' }, maxBuffer: 64 * 1024 * 1024 },
      (error, out, err) => {
        const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        resolve({ exitCode, out, err });
      },
    );
  });
}
