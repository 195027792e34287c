/** The software bill of materials in CycloneDX 1.6: noria, Node, and every package that the lock file has for users. */
import { readFileSync } from 'node:fs';
import { EPOCH_SECONDS } from './archive.ts';

interface LockedPackage {
  readonly version?: string;
  readonly license?: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const MODULES = 'node_modules/';

export function billOfMaterials(version: string): string {
  const lock: { packages: Record<string, LockedPackage> } = JSON.parse(
    readFileSync('package-lock.json', 'utf8'),
  );
  const shipped = Object.entries(lock.packages).filter(([path, { dev }]) => path !== '' && dev !== true);
  const refOf = (path: string) =>
    `pkg:npm/${nameOf(path).replace('@', '%40')}@${lock.packages[path]?.version}`;
  const components = shipped.map(([path, { version: itsVersion, license, integrity }]) => ({
    type: 'library',
    'bom-ref': refOf(path),
    name: nameOf(path),
    version: itsVersion,
    ...(license === undefined ? {} : { licenses: [{ expression: license }] }),
    ...(integrity === undefined ? {} : { hashes: [hashOf(integrity)] }),
    purl: refOf(path),
  }));
  const node = `pkg:generic/node@${process.versions.node}`;
  const own = `pkg:npm/noria@${version}`;
  const dependencies = shipped.map(([path, locked]) => ({
    ref: refOf(path),
    dependsOn: dependsOn(path, locked, lock.packages).map(refOf),
  }));
  const direct = dependsOn('', lock.packages[''] ?? {}, lock.packages).map(refOf);
  return `${JSON.stringify(
    {
      bomFormat: 'CycloneDX',
      specVersion: '1.6',
      version: 1,
      metadata: {
        timestamp: new Date(EPOCH_SECONDS * 1_000).toISOString(),
        component: {
          type: 'application',
          'bom-ref': own,
          name: 'noria',
          version,
          purl: own,
          licenses: [{ expression: 'MIT' }],
        },
      },
      components: [
        {
          type: 'platform',
          'bom-ref': node,
          name: 'node',
          version: process.versions.node,
          licenses: [{ expression: 'MIT' }],
          purl: node,
        },
        ...byRef(components),
      ],
      dependencies: [{ ref: own, dependsOn: [node, ...direct] }, ...dependencies],
    },
    undefined,
    2,
  )}\n`;
}

/** Two folders may hold the same version of one package. */
function byRef<T extends { readonly 'bom-ref': string }>(components: readonly T[]): T[] {
  return [...new Map(components.map((component) => [component['bom-ref'], component])).values()];
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf(MODULES) + MODULES.length);
}

function hashOf(integrity: string): { readonly alg: string; readonly content: string } {
  const [algorithm = '', base64 = ''] = integrity.split('-');
  return { alg: algorithm.replace('sha', 'SHA-'), content: Buffer.from(base64, 'base64').toString('hex') };
}

/** The folders of a package's dependencies, found as Node finds them: in the nearest `node_modules` above. */
function dependsOn(
  path: string,
  { dependencies = {} }: LockedPackage,
  packages: Readonly<Record<string, LockedPackage>>,
): string[] {
  return Object.keys(dependencies).flatMap((name) => {
    for (let parent = path; ; parent = parent.slice(0, Math.max(0, parent.lastIndexOf(MODULES) - 1))) {
      const found = `${parent === '' ? '' : `${parent}/`}${MODULES}${name}`;
      if (found in packages) return [found];
      if (parent === '') return [];
    }
  });
}
