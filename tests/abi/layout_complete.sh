#!/usr/bin/env bash
# usage: layout_complete.sh <include folder> <layout file>
# Every struct of the C headers has its line in the frozen layout, and the layout holds no other.
set -euo pipefail
in_headers=$(grep -ohE '^typedef struct bl_\w+ \{' "$1"/bloomery/*.h | awk '{print $3}' | sort)
in_layout=$(grep -oE '^SIZE\(bl_\w+' "$2" | cut -d'(' -f2 | sort)
diff <(echo "$in_headers") <(echo "$in_layout") && echo "$(wc -l <<<"$in_headers") structs"
