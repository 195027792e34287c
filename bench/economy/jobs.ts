/** The jobs of the economy bench: who wants which pages when. */
import { seededRandom } from '../../src/core/random.ts';
import type { Subject } from './subjects.ts';
import type { Site, SiteName, Vendor, World } from './world.ts';
import { PERFECT, USUAL } from './world.ts';

export interface Job {
  readonly about: string;
  /** How much faster than real time the job runs. */
  readonly factor: number;
  readonly vendor: Vendor;
  run(world: World, page: (site: Site, session?: string) => void): Promise<void>;
}

export interface JobResult {
  readonly pages: number;
  readonly ok: number;
  readonly drawn: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly calls: number;
  readonly earlyCalls: number;
  readonly minutes: number;
  /** Visits of a site by an exit that it has banned. */
  readonly bannedVisits: number;
  /** Of the logins, those whose pages all came, and from one exit. */
  readonly whole: number;
  readonly logins: number;
}

/** Over all rounds of the job `logins`; more than a few, because a share is compared with a limit. */
const LOGIN_ROUNDS = 15;

const BANNING: readonly SiteName[] = ['minute', 'total', 'resetting'];

export const JOBS = {
  slow: {
    about: 'one page each 30 s for ten minutes',
    factor: 10,
    vendor: PERFECT,
    run: (world, page) => evenly(world, 20, 30_000, () => page(world.sites.open)),
  },
  'slow-dead': {
    about: 'the same with 20 % dead IPs',
    factor: 10,
    vendor: USUAL,
    run: (world, page) => evenly(world, 20, 30_000, () => page(world.sites.open)),
  },
  steady: {
    about: 'one page a second for five minutes from three sites that ban',
    factor: 10,
    vendor: USUAL,
    async run(world, page) {
      let next = 0;
      await evenly(world, 300, 1_000, () => {
        page(world.sites[BANNING[next % BANNING.length] ?? 'open']);
        next += 1;
      });
    },
  },
  bursts: {
    about: '40 pages in two seconds each minute for five minutes',
    factor: 5,
    vendor: USUAL,
    async run(world, page) {
      for (let burst = 0; burst < 5; burst += 1) {
        await evenly(world, 40, 50, () => page(world.sites.open));
        await world.wait(58_000);
      }
    },
  },
  logins: {
    about: '30 logins of 20 pages, two at a time, a page each two seconds',
    factor: 5,
    vendor: USUAL,
    async run(world, page) {
      const login = (name: string) => evenly(world, 20, 2_000, () => page(world.sites.open, name));
      for (let round = 0; round < LOGIN_ROUNDS; round += 1) {
        await Promise.all([login(`a${round}`), login(`b${round}`)]);
      }
    },
  },
  'cold start': {
    about: 'from nothing to 40 pages a second for 20 s',
    factor: 2,
    vendor: USUAL,
    run: (world, page) => evenly(world, 800, 25, () => page(world.sites.open)),
  },
  'after idle': {
    about: 'one page after ten idle minutes',
    factor: 60,
    vendor: PERFECT,
    async run(world, page) {
      await world.wait(600_000);
      page(world.sites.open);
      await world.wait(30_000);
    },
  },
} as const satisfies Record<string, Job>;

export type JobName = keyof typeof JOBS;

export async function runJob(
  job: Job,
  world: World,
  open: (world: World) => Promise<Subject>,
): Promise<JobResult> {
  const subject = await open(world);
  const startedAt = world.clock.monotonic();
  const waits: number[] = [];
  const pages: Promise<void>[] = [];
  const broken = new Map<string, boolean>();
  let ok = 0;
  await job.run(world, ({ url }, session) => {
    const askedAt = world.clock.monotonic();
    if (session !== undefined && !broken.has(session)) broken.set(session, false);
    pages.push(
      subject.page(`${url}${session ?? ''}`, session).then((served) => {
        if (served) ok += 1;
        else if (session !== undefined) broken.set(session, true);
        waits.push(world.clock.monotonic() - askedAt);
      }),
    );
  });
  await Promise.all(pages);
  const minutes = (world.clock.monotonic() - startedAt) / 60_000;
  const drawn = subject.drawn();
  await subject.close();
  const sites = Object.values(world.sites);
  const isWhole = ([login, failed]: readonly [string, boolean]) =>
    !failed && sites.every(({ exitsOf }) => (exitsOf.get(login)?.size ?? 1) === 1);
  const { calls, paceBreaks } = world.sandbox.stats();
  waits.sort((a, b) => a - b);
  const at = (share: number) => waits[Math.min(waits.length - 1, Math.floor(share * waits.length))] ?? 0;
  return {
    ...{ pages: pages.length, ok, drawn, minutes, calls, earlyCalls: paceBreaks },
    ...{ p50Ms: at(0.5), p99Ms: at(0.99) },
    bannedVisits: sites.reduce((sum, site) => sum + site.bannedVisits, 0),
    ...{ whole: [...broken].filter(isWhole).length, logins: broken.size },
  };
}

/** Calls `next` this many times, on average each `everyMs`, at the moments of a seeded clockwork with some jitter. */
async function evenly(world: World, times: number, everyMs: number, next: () => void): Promise<void> {
  const random = seededRandom(times);
  const startAt = world.clock.monotonic();
  for (let count = 0; count < times; count += 1) {
    const dueMs = startAt + everyMs * (count + 0.8 * random()) - world.clock.monotonic();
    if (dueMs > 0) await world.wait(dueMs);
    next();
  }
}
