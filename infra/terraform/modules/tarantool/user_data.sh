#!/bin/bash
# Tarantool with this version's code, its data on the second volume. Run once, at the machine's first start.
set -euo pipefail

apt-get update
apt-get install -y tarantool awscli jq xfsprogs

# The volume is attached to a machine that runs already.
device=
while [ -z "$device" ]; do
  for found in /dev/nvme1n1 /dev/sdf /dev/xvdf; do
    if [ -b "$found" ]; then device=$found; fi
  done
  if [ -z "$device" ]; then
    if [ "$SECONDS" -ge 600 ]; then
      echo "no second volume after $SECONDS s" >&2
      exit 1
    fi
    sleep 2
  fi
done
blkid "$device" || mkfs.xfs "$device"
mkdir -p /var/lib/mts
echo "$device /var/lib/mts xfs defaults,nofail 0 2" >> /etc/fstab
mount -a

cat > /usr/local/bin/mts-tarantool <<'SCRIPT'
#!/bin/bash
# Code and password are fetched at every start: to renew either, reboot the machine. /run/mts is empty then.
set -euo pipefail
umask 077
aws s3 cp "${code_url}" - | tar -xz -C /run/mts
aws secretsmanager get-secret-value --secret-id "${secret}" --query SecretString --output text \
  | jq -j '."tarantool.password"' > /run/mts/password
export MTS_TARANTOOL_LISTEN=0.0.0.0:3301 MTS_TARANTOOL_DIR=/var/lib/mts/data MTS_TARANTOOL_WAL_MODE=fsync
export MTS_TARANTOOL_MEMORY=${memory_bytes} MTS_TARANTOOL_USER=mts MTS_TARANTOOL_PASSWORD_FILE=/run/mts/password
exec tarantool /run/mts/tarantool/init.lua
SCRIPT
chmod 755 /usr/local/bin/mts-tarantool

cat > /etc/systemd/system/mts-tarantool.service <<'UNIT'
[Unit]
Description=Tarantool of MiniToolStream
After=network-online.target
Wants=network-online.target
RequiresMountsFor=/var/lib/mts

[Service]
User=tarantool
RuntimeDirectory=mts
ExecStart=/usr/local/bin/mts-tarantool
Restart=always
RestartSec=5
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
UNIT
mkdir -p /var/lib/mts/data
chown -R tarantool /var/lib/mts/data
systemctl disable --now tarantool || true
systemctl daemon-reload
systemctl enable --now mts-tarantool
