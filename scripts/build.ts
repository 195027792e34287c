/**
 * Builds dist/ from src/: compiled JavaScript with types, the page's assets next to it, the command executable.
 * `--no-check` skips the type check: the output is the same, four times as fast.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
process.chdir(root);
// scripts/package writes to dist/package
for (const name of existsSync('dist') ? readdirSync('dist') : [])
  if (name !== 'package') rmSync(`dist/${name}`, { recursive: true, force: true });

const compiler = fileURLToPath(import.meta.resolve('typescript/package.json')).replace(
  /package\.json$/,
  'bin/tsc',
);
const flags = process.argv.includes('--no-check') ? ['--noCheck'] : [];
const { status } = spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json', ...flags], {
  stdio: 'inherit',
});
if (status !== 0) process.exit(status ?? 1);

const page = 'src/admin/page';
if (existsSync(page))
  cpSync(page, 'dist/admin/page', { recursive: true, filter: (path) => !path.endsWith('.ts') });
cpSync('docs', 'dist/admin/docs', {
  recursive: true,
  filter: (path) => !/\.\w+$/.test(path) || path.endsWith('.md'),
});
chmodSync('dist/main.js', 0o755);
