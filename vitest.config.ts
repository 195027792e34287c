import './scripts/check-node.cjs';
import { join, relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Journeys that two worker processes could change: who serves, what is shared between them, how they end. */
const WITH_WORKERS = [
  'crash',
  'curl',
  'dying-member',
  'front-proxy',
  'own-address',
  'process',
  'proxy-pool',
  'refused-source',
  'reload',
  'rotation',
  'secrets',
  'verdicts',
];

/** A safety net for a machine that is busy with other work. No test measures time, and none takes this long. */
export const LIMIT_MS = 300_000;

/**
 * Tests that `npm run test:all` adds to `npm test`: they drive programs of others, repeat what shorter tests show, show what rarely
 * breaks, or wait for real intervals. It also makes random histories ten times as long (test/support/properties.ts).
 */
export const LONG = [
  'test/admin/starvation.test.ts',
  'test/chaos/{demand,lone-client,pace}.test.ts',
  'test/chaos/fleet/*.test.ts',
  'test/commands/{completion,fleet,old-node}.test.ts',
  'test/core/engine.test.ts',
  'test/differential/*.test.ts',
  'test/fleet/redis/{inspect-store,lost-store,machines,model}.test.ts',
  'test/fleet/redis/{session-agreement,store-connection,store-limits,untrusted-store}.test.ts',
  'test/foreign-members/*.test.ts',
  'test/held/patterns.test.ts',
  'test/integrations/*.test.ts',
  'test/journeys/{browser,clients,crash,curl-transfers,dashboard,demo,fleet-changes,fleet-workers,front-proxy}.test.ts',
  'test/journeys/{kinds,ledger-totals,links,lists,mute-members,node-agents,package,package-image,packages}.test.ts',
  'test/journeys/{products,proxy-pool,secrets,site-evidence,steering,story,systemd}.test.ts',
  'test/plane/workers/{shared-members,supervisor,workers}.test.ts',
  'test/refill/pace-processes.test.ts',
  'test/refill/simulation/{simulate,trial}.test.ts',
  'test/service/client-environment.test.ts',
];

/** Tests that wait for other processes most of the time, and the longest history. */
const LONGEST = /^test\/(journeys|plane\/workers|fleet|pool\/invariants)\b/;

/** Starts the longest tests first, so that the short ones fill the cores until the end. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project, moduleId }: TestSpecification) => {
      if (project.name !== 'noria') return 0;
      return LONGEST.test(relative(import.meta.dirname, moduleId)) ? 1 : 2;
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b)); // stable
  }
}

export default defineConfig({
  test: {
    // Test files may share a process: each closes what it opens, and no module of noria keeps state.
    isolate: false,
    // Node imports the sources itself, as noria does, and keeps the compiled code.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    // More than two cores, because journeys wait for other processes. Eight took two fifths more CPU time: each loads all modules.
    maxWorkers: 4,
    sequence: { sequencer: LongestFirst },
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, 'node_modules/.cache/compile') },
    globalSetup: ['test/support/machine.ts'],
    reporters: ['default', './test/support/skipped-tests.ts'],
    setupFiles: ['test/support/properties.ts'],
    testTimeout: LIMIT_MS,
    hookTimeout: LIMIT_MS,
    projects: [
      { extends: true, test: { name: 'noria', include: ['test/**/*.test.ts'], exclude: LONG } },
      {
        extends: true,
        test: { name: 'long', include: LONG, env: { NORIA_TEST_LENGTH: 'full' } },
      },
      {
        extends: true,
        test: {
          name: 'two workers',
          include: WITH_WORKERS.map((name) => `test/journeys/${name}.test.ts`),
          env: { NORIA_TEST_WORKERS: '2', NORIA_KILLS: '2' },
        },
      },
    ],
  },
});
