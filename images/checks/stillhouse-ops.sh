# The operations side: pipelines compiled, releases made and rolled back, two looks of the watcher; no Kubeflow is there.
export GIT_AUTHOR_NAME=Checks GIT_AUTHOR_EMAIL=checks@localhost GIT_COMMITTER_NAME=Checks GIT_COMMITTER_EMAIL=checks@localhost

stillhouse pipeline compile train --recipe micro --output /scratch/train.yaml
stillhouse schedule --help > /dev/null
echo "schedules: {}" > /scratch/schedules.yaml
if said="$(stillhouse schedule apply /scratch/schedules.yaml --endpoint http://localhost:1 2>&1)"; then exit 1; fi
case "$said" in *"Kubeflow Pipelines at http://localhost:1 does not answer"*) ;; *) echo "$said" >&2; exit 1 ;; esac

git init --quiet --initial-branch main /scratch/articles
cd /scratch/articles
dvc init --quiet
dvc remote add --quiet --default storage /scratch/storage
mkdir corpus && echo "Ships carry accurate clocks." > corpus/passages.txt
dvc add --quiet corpus
git add --all && git commit --quiet --message "A corpus"
dvc push --quiet
rm -r corpus .dvc/cache && dvc pull --quiet && test -s corpus/passages.txt

git init --quiet --bare --initial-branch main /scratch/releases.git
git clone --quiet /scratch/releases.git /scratch/work 2>/dev/null
cd /scratch/work
for name in dvc.yaml dvc.lock params.yaml; do echo "{}" > "$name"; done
git add --all && git commit --quiet --message "Begin" && git push --quiet origin main
python /scratch/checks/releases.py /scratch/work /scratch/releases.git /scratch/articles
stillhouse release rollback --reason "a check"
stillhouse release list
