#!/bin/bash
set -euo pipefail

export SOURCE="/home/data"
export TARGET="/mnt/backup"
export KEEP_DAYS=14
export LOG_FILE="backup.log"
export COMPRESSION="gzip"

stamp=$(date +%Y-%m-%d)
archive="$TARGET/data-$stamp.tar.gz"

log() {
  echo "$(date +%T) $1" >> "$LOG_FILE"
}

log "backup started"
mkdir -p "$TARGET"
tar -czf "$archive" "$SOURCE"
log "wrote $archive"

find "$TARGET" -name "data-*.tar.gz" -mtime "+$KEEP_DAYS" -delete
log "backup finished"
