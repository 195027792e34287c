import { answerControl } from './control.ts';
import { openExits } from './exits.ts';
import { Sandbox, type SandboxOptions } from './sandbox.ts';
import { loadScenario } from './scenario.ts';

/**
 * Opens a sandbox. This takes only milliseconds, because members are created later, when they are drawn.
 *
 * @throws NoriaError `listen-failed` if it cannot listen on a port, `bad-config` for an invalid scenario file.
 */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const given = options.scenario ?? {};
  const scenario = typeof given === 'string' ? await loadScenario(given) : given;
  const sandbox = new Sandbox(options, scenario, await openExits(options.aliases), answerControl);
  await sandbox.open();
  return sandbox;
}
