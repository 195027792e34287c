/** The Debian package: the executable, its systemd units, a configuration to edit, the manual page and the completions. */
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { ar, type Entry, tar } from './archive.ts';
import { completionFor, manualPage } from './manual.ts';

const CONFIGURATION = 'etc/noria/noria.yaml';
const DEBIAN_NAMES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };

/** The name of an architecture in Debian, and in OCI images. */
export function debianName(arch: string): string {
  const name = DEBIAN_NAMES[arch];
  if (name === undefined) throw new TypeError(`no name for ${arch}`);
  return name;
}

/** Runs after the package was unpacked; and a running noria gets the new program. */
const AFTER_INSTALL = `#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d "$DPKG_ROOT/run/systemd/system" ] && [ -z "$DPKG_ROOT" ]; then
  systemctl daemon-reload
  [ -z "$2" ] || systemctl try-restart noria.service
fi
`;
const BEFORE_REMOVAL = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then
  systemctl disable --now noria.service noria.socket
fi
`;
/** State and secrets are the operator's: only a purge removes them. */
const AFTER_REMOVAL = `#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ -z "$DPKG_ROOT" ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then rm -rf "$DPKG_ROOT/var/lib/noria" "$DPKG_ROOT/var/lib/private/noria" "$DPKG_ROOT/etc/noria"; fi
`;

export async function debianPackage({
  version,
  arch,
  executable,
}: {
  readonly version: string;
  readonly arch: string;
  readonly executable: Buffer;
}): Promise<Buffer> {
  const files = await filesOf(executable);
  const kib = Math.ceil(files.reduce((sum, { bytes }) => sum + (bytes?.length ?? 0), 0) / 1_024);
  const control = `Package: noria
Version: ${version}
Architecture: ${debianName(arch)}
Maintainer: The noria authors
Installed-Size: ${kib}
Depends: libc6 (>= 2.28), libstdc++6 (>= 6)
Suggests: systemd
Section: net
Priority: optional
Description: local rotating forward proxy over short-lived proxy IPs
 Clients use one port, and each connection goes through a healthy proxy that
 noria draws from an extraction service at the allowed pace.
`;
  const scripts = { postinst: AFTER_INSTALL, prerm: BEFORE_REMOVAL, postrm: AFTER_REMOVAL };
  const parts = [
    entry('control', control),
    entry('conffiles', `/${CONFIGURATION}\n`),
    ...Object.entries(scripts).map(([name, text]) => ({ ...entry(name, text), mode: 0o755 })),
  ];
  return ar([
    ['debian-binary', Buffer.from('2.0\n')],
    ['control.tar.gz', gzipSync(tar(parts), { level: 9 })],
    ['data.tar.gz', gzipSync(tar(files))],
  ]);
}

async function filesOf(executable: Buffer): Promise<Entry[]> {
  const compressed = (text: string) => gzipSync(text, { level: 9 });
  return [
    { path: 'usr/bin/noria', mode: 0o755, bytes: executable },
    entry(CONFIGURATION, readFileSync('scripts/package/etc-noria.yaml')),
    { path: 'etc/noria/secrets/', mode: 0o700 },
    entry('usr/lib/systemd/system/noria.service', unit('systemd/noria.service')),
    entry('usr/lib/systemd/system/noria.socket', unit('systemd/noria.socket')),
    entry('usr/share/man/man1/noria.1.gz', compressed(await manualPage())),
    entry('usr/share/bash-completion/completions/noria', await completionFor('bash')),
    entry('usr/share/zsh/vendor-completions/_noria', await completionFor('zsh')),
    entry('usr/share/fish/vendor_completions.d/noria.fish', await completionFor('fish')),
    entry('usr/share/doc/noria/copyright', readFileSync('LICENSE')),
    entry('usr/share/doc/noria/changelog.gz', compressed(readFileSync('CHANGELOG.md', 'utf8'))),
    entry('usr/share/doc/noria/config.example.yaml', readFileSync('config.example.yaml')),
  ];
}

/** The unit of this repository, with the program and the manual that the package installs. */
function unit(file: string): string {
  return readFileSync(file, 'utf8')
    .replace('/usr/bin/node /usr/lib/noria/dist/main.js', '/usr/bin/noria')
    .replace('file:/usr/lib/noria/README.md', 'man:noria(1)');
}

function entry(path: string, bytes: Buffer | string): Entry {
  return { path, mode: 0o644, bytes: Buffer.from(bytes) };
}
