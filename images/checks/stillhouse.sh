# The steps: two tasks of a compiled pipeline, a stage by DVC in a git repository, a whole run of the recipe `micro`, and
# a service of what that run chose.
export STILLHOUSE_QUIET=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
export GIT_AUTHOR_NAME=Checks GIT_AUTHOR_EMAIL=checks@localhost GIT_COMMITTER_NAME=Checks GIT_COMMITTER_EMAIL=checks@localhost

python /scratch/checks/task.py /scratch/checks/train.yaml corpus /scratch/task

git init --quiet --bare --initial-branch main /scratch/releases.git
stillhouse new /scratch/work --recipe micro
cd /scratch/work
git init --quiet --initial-branch main
git remote add origin /scratch/releases.git
dvc remote add --quiet --default storage /scratch/storage
git add --all && git commit --quiet --message "Begin" && git push --quiet --set-upstream origin main
stillhouse release list
dvc repro corpus
dvc push --quiet

stillhouse run --recipe micro --folder /scratch/micro
test -s /scratch/micro/artifacts/evaluate/evaluation/report.html

stillhouse serve /scratch/micro/artifacts/best --port 8080 &
service=$!
python /scratch/checks/service.py http://127.0.0.1:8080
kill "$service" && wait "$service"
