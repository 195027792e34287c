import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { runNoria, testFolder, writeIn } from '../journeys/noria-process.ts';

/** Runs a script in a process that claims to be another version of Node. */
async function runAs(version: string, ...argv: readonly string[]) {
  const pretend = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });`;
  const preload = writeIn(testFolder(), 'pretend.cjs', pretend);
  const noria = runNoria(argv, { command: [process.execPath, '-r', preload] });
  const [code] = await noria.ended;
  return { code, out: noria.out(), err: noria.err() };
}

const CHECKED = ['-r', './scripts/check-node.cjs', 'src/main.ts', '--version'];

test.each(['12.22.0', '20.20.2', '22.22.1', '23.11.0', '25.0.0'])(
  'old node: npm scripts on Node %s end with one sentence that says what to do',
  async (version) => {
    const { code, out, err } = await runAs(version, ...CHECKED);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(
      /^noria does not run on Node \S+ \(.*\): run npm ci without --ignore-scripts, .*\.\n$/,
    );
  },
);

test.each(['22.22.2', '24.15.0', '24.99.0', '26.0.0', '27.1.0'])(
  'old node: npm scripts run on Node %s',
  async (version) => {
    expect(await runAs(version, ...CHECKED)).toMatchObject({ code: 0, err: '' });
  },
);

test('old node: the installed package ends with one sentence that says what to do', async () => {
  const { code, out, err } = await runAs('20.20.2', 'src/main.ts', '--version');
  expect({ code, out }).toEqual({ code: 2, out: '' });
  expect(err).toBe(
    'noria needs Node 22 or newer, and this is Node 20.20.2: install Node 24, then run noria again.\n',
  );
});

test('old node: every npm script that runs TypeScript checks the version first', () => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
  const running = Object.values(scripts).filter((script) => /\bnode\b.*\.ts\b/.test(script));
  expect(running.length).toBeGreaterThan(3);
  for (const script of running) expect(script).toMatch(/^(?:exec )?node -r \.\/scripts\/check-node\.cjs /);
});
