/** Before the tests: builds noria, finds out once what this machine lacks, and says it in one line (vitest's globalSetup). */
import { BUILD, buildNoria } from './noria-build.ts';
import { MODULES, PYTHON } from './python.ts';
import { CHROMIUM, FAKE_CLOCK, findUnusable, NOT_HERE } from './tools.ts';

export async function setup(): Promise<void> {
  if (process.env[NOT_HERE] !== undefined) return; // each project sets up
  const notHere = await findNotHere();
  process.env[NOT_HERE] = notHere;
  process.env[BUILD] = await buildNoria();
  if (notHere !== '') process.stderr.write(`not here: ${notHere}; the tests that need them are skipped\n`);
}

export async function findNotHere(): Promise<string> {
  const notHere = [...(await findUnusable())];
  if (CHROMIUM === undefined) notHere.push('chromium');
  if (FAKE_CLOCK === undefined) notHere.push('libfaketime');
  notHere.push(...MODULES.filter((name) => !PYTHON.modules.includes(name)).map((name) => `Python ${name}`));
  return notHere.join(', ');
}
