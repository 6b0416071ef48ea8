# Writes OUT with the commit of the tree at SOURCE; touches it only when the commit has changed, so that
# a build that changes nothing compiles nothing.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define BLOOMERY_COMMIT \"@commit@\"\n" @ONLY)
