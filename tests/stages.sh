# shellcheck shell=bash
# Sourced by the test scripts: names their stages, says which one failed, and what each took. Nothing else belongs here.
#   begin NAME    ends the stage before and starts one
#   print_stages  ends the last stage and prints a table

stage_name='' stage_wall=0 stage_cpu=0 stage_table=''

end_stage() {
  local cpu
  mkdir -p build
  times > build/times.txt  # here and not in a subshell, whose children are others
  cpu=$(awk '{ split($0, part, /[ms ]+/); sum += part[1] * 60 + part[2] + part[3] * 60 + part[4] } END { printf "%d", sum }' build/times.txt)
  if [ -n "$stage_name" ]; then
    stage_table+=$(printf '%6d s, of processors %6d s: %s' $((SECONDS - stage_wall)) $((cpu - stage_cpu)) "$stage_name")$'\n'
  fi
  stage_name='' stage_wall=$SECONDS stage_cpu=$cpu
}

begin() {
  end_stage
  stage_name=$1
  printf '\n== %s (%s)\n' "$stage_name" "$(date +%H:%M:%S)"
}

print_stages() {
  end_stage
  printf '\n== what the stages took\n%s' "$stage_table"
}

report_failure() {
  local code=$?
  [ $code = 0 ] || [ -z "$stage_name" ] || echo "FAILED in: $stage_name"
  exit $code
}
trap report_failure EXIT
