/**
 * `npm run package`: writes to dist/package/ what people install without Node, offline. `--out FOLDER` names another folder. Two runs
 * on one checkout write the same bytes.
 */
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { readVersion } from '../../src/core/version.ts';
import { readAssetPaths } from './assets.ts';
import { debianName, debianPackage } from './deb.ts';
import { bundle, nodeFor, OTHER_NODES, writeExecutable } from './executable.ts';
import { ImageLayout } from './oci.ts';
import { billOfMaterials } from './sbom.ts';

const ARCHITECTURES = ['x64', 'arm64'];

const { values } = parseArgs({ options: { out: { type: 'string', default: 'dist/package' } } });
const out = resolve(values.out);
process.chdir(fileURLToPath(new URL('../..', import.meta.url)));
if (process.platform !== 'linux') {
  console.error(`npm run package needs Linux: it writes Linux packages, and this is ${process.platform}`);
  process.exit(2);
}
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'noria-package-'));
try {
  await writeAll();
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function writeAll(): Promise<void> {
  const version = readVersion();
  const files = readAssetPaths();
  const image = new ImageLayout(join(out, 'oci'));
  const assets = { ...files, ...(await bundle(folder)) };
  for (const arch of ARCHITECTURES) {
    const node = nodeFor(arch);
    if (node === undefined) {
      console.log(
        `not built: linux-${arch}, because its Node is not here: npm install --prefix ${OTHER_NODES} --no-save --force node-linux-${arch}@${process.versions.node}`,
      );
      continue;
    }
    const program = join(folder, `noria-${arch}`);
    await writeExecutable(program, { node, assets, folder, isOwnPlatform: arch === process.arch });
    copyFileSync(program, join(out, `noria-${version}-linux-${arch}`));
    const executable = readFileSync(program);
    const deb = await debianPackage({ version, arch, executable });
    writeFileSync(join(out, `noria_${version}_${debianName(arch)}.deb`), deb);
    const lacking = image.add(arch, executable);
    if (lacking !== '') console.log(`not in the image: linux-${arch}, because ${lacking}`);
  }
  image.close(version);
  writeFileSync(join(out, 'sbom.cdx.json'), billOfMaterials(version));
  writeSums();
}

/** Writes SHA256SUMS over every other file, in the format of `sha256sum --check`, and prints the sizes. */
function writeSums(): void {
  const files = readdirSync(out, { recursive: true, encoding: 'utf8' })
    .filter((name) => statSync(join(out, name)).isFile())
    .sort();
  const lines = files.map((name) => {
    const bytes = readFileSync(join(out, name));
    if (!name.startsWith('oci/'))
      console.log(`${(bytes.length / 1e6).toFixed(1).padStart(7)} MB  ${relative('.', join(out, name))}`);
    return `${createHash('sha256').update(bytes).digest('hex')}  ${name}\n`;
  });
  writeFileSync(join(out, 'SHA256SUMS'), lines.join(''));
}
